# Completion of sluice for fish. Once: sluice completion fish | source. For good: put the output
# into ~/.config/fish/completions/sluice.fish.
function __sluice
	set -l typed (commandline -ct)
	set -l words (commandline -opc) "$typed"
	for line in ($words[1] completion fish -- $words[2..-1] 2>/dev/null)
		switch $line
			case ':files'
				__fish_complete_path (string replace -r '^--[^=]*=' '' -- "$typed")
			case '*'
				echo $line
		end
	end
end
complete -c sluice -f -a '(__sluice)'
