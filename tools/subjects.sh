#!/usr/bin/env bash
# Checks the subjects of commits: "scope: verb object", imperative, under 76 characters.
#
#     tools/subjects.sh              # the commits since this check was added
#     tools/subjects.sh main..HEAD   # those of a range
#
# Merge commits are exempt. The imperative is recognised by exclusion: the first word is not an article,
# pronoun or preposition, and does not end like a third person, a participle or a gerund.
set -euo pipefail

cd "$(dirname "$0")/.."
range=${1-}
if [ -z "$range" ]; then
	# Without git, or in a shallow clone, there is nothing to check.
	first=$(git log --diff-filter=A --format=%H -- tools/subjects.sh 2>/dev/null | tail -n 1 || true)
	[ -n "$first" ] && git rev-parse -q --verify "$first^" >/dev/null || exit 0
	range="$first^..HEAD"
fi

git log --no-merges --format='%h %s' "$range" | awk '
	function bad(why) { print "lint: commit " $0 "\n      " why; failed = 1 }
	{
		subject = substr($0, index($0, " ") + 1)
		if (length(subject) >= 76) bad("has " length(subject) " characters: at most 75")
		if (subject !~ /^[][A-Za-z0-9_.\/,*{} -]+: [^ ]/) { bad("needs the form \"package: verb object\""); next }
		rest = substr(subject, index(subject, ": ") + 2)
		split(rest, word, " ")
		verb = word[1]
		if (rest ~ /\.$/) bad("ends with a full stop")
		if (verb ~ /^[A-Z]/) bad("starts with a capital after the colon")
		else if (verb ~ /^(a|an|the|it|its|no|not|one|all|each|every|there|this|what|who|when|where|how|why|if|of|in|on|by|for|to|from|with|without|is|are|was|has)$/ ||
			verb ~ /(ed|ing|[^s]s)$/ && verb !~ /^(embed|feed|need|seed|shed|speed|proceed|exceed|bring|ping|string|focus|alias|canvas|bias)$/ ||
			word[2] ~ /^(is|are|was|were|has|does)$/)
			bad("starts with \"" verb " " word[2] "\", not with a verb in the imperative (add, fix, remove)")
	}
	END { exit failed }'
