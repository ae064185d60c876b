#compdef sluice
# Completion of sluice for zsh. Once: source <(sluice completion zsh). For good: put the output into
# a file _sluice in a directory of $fpath.
_sluice() {
	local line files
	local -a all
	while IFS= read -r line; do
		case $line in
		:files) files=1 ;;
		*) all+=("${${${line%%$'\t'*}//\\/\\\\}//:/\\:}:${line#*$'\t'}") ;;
		esac
	done < <("$words[1]" completion zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
	(( $#all )) && _describe -t sluice sluice all
	if [[ -n $files ]]; then
		compset -P '--*='
		_files
	fi
}
if [[ $funcstack[1] == _sluice ]]; then _sluice "$@"; else compdef _sluice sluice; fi
