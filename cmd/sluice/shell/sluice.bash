# Completion of sluice for bash. Once: source <(sluice completion bash). For good: put that line
# into ~/.bashrc, or the output into a file sluice in ~/.local/share/bash-completion/completions.
_sluice() {
	local -a words
	local typed kept line
	# bash would part words at = and : as well, as COMP_WORDBREAKS says.
	read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
	case ${COMP_LINE:0:COMP_POINT} in *[[:space:]]) words+=("") ;; esac
	typed=${words[${#words[@]} - 1]}
	kept=
	if [[ $COMP_WORDBREAKS == *=* ]]; then kept=${typed%"${typed##*=}"}; fi
	COMPREPLY=()
	while IFS= read -r line; do
		case $line in
		:files)
			compopt -o filenames 2>/dev/null
			while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "${typed#"$kept"}")
			;;
		*) COMPREPLY+=("$(line=${line%%$'\t'*} && printf '%s' "${line#"$kept"}")") ;;
		esac
	done < <("${words[0]}" completion bash -- "${words[@]:1}" 2>/dev/null)
}
complete -F _sluice sluice
