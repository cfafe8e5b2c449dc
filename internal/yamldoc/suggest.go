package yamldoc

import (
	"slices"
	"strings"
)

// suggest returns the known key that whoever wrote unknown probably meant, "" when none is near.
// The order of known decides between equals.
func suggest(unknown string, known []string) string {
	best, bestDistance := "", -1
	for _, candidate := range known {
		distance := keyDistance(unknown, candidate)
		if distance <= tolerance(unknown, candidate) && (best == "" || distance < bestDistance) {
			best, bestDistance = candidate, distance
		}
	}
	return best
}

// keyDistance is how many slips lie between two keys. Spelling habits cost nothing (log_level,
// logLevel), and neither does stopping early (metrics for metrics-address).
func keyDistance(unknown, known string) int {
	a, b := plainKey(unknown), plainKey(known)
	if len(a) >= 3 && strings.HasPrefix(b, a) {
		return 0
	}
	return editDistance(a, b)
}

func plainKey(key string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(key))
}

// tolerance is the distance up to which two keys are near: a third of the longer one.
func tolerance(a, b string) int { return max(len(a), len(b)) / 3 }

// editDistance counts the insertions, deletions, substitutions and swaps of neighbours that make b
// of a (Damerau-Levenshtein, each place edited once).
func editDistance(a, b string) int {
	var beforeLast []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], beforeLast[j-1]+1)
			}
		}
		beforeLast, last = last, row
	}
	return last[len(b)]
}

// elsewhere returns the full path of the one key that is called unknown on another level, "" when
// there is none.
func elsewhere(unknown string, paths []string) string {
	i := slices.IndexFunc(paths, func(path string) bool {
		return strings.HasSuffix(path, "."+unknown)
	})
	if i < 0 {
		return ""
	}
	return paths[i]
}

// unknownRemedy is what to do about a key that is not among known, the keys of its level; paths are
// those of the whole document.
func unknownRemedy(unknown string, known, paths []string) string {
	if len(unknown) > 64 { // no slip of the pen, and long to compare
		return "known here: " + strings.Join(known, ", ")
	}
	if near := suggest(unknown, known); near != "" {
		return "did you mean " + near + "?"
	}
	if other := elsewhere(unknown, paths); other != "" {
		return "did you mean " + other + "?"
	}
	return "known here: " + strings.Join(known, ", ")
}
