package agent

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"warren/internal/api"
)

// problems are what an operator has to mend, by who found them. Each finder replaces its own list;
// a problem keeps the time since which it has been there.
type problems struct {
	found map[string][]api.Problem
}

// set replaces the problems of a finder. New ones are logged once, and so is the end of each.
func (p *problems) set(finder string, list []api.Problem, now time.Time, log *slog.Logger) {
	if p.found == nil {
		p.found = map[string][]api.Problem{}
	}
	old := p.found[finder]
	for i, problem := range list {
		list[i].Since = now
		if j := slices.IndexFunc(old, same(problem)); j >= 0 {
			list[i].Since = old[j].Since
			continue
		}
		log.Error("problem", "where", problem.Where, "problem", problem.Message, "remedy", problem.Remedy)
	}
	for _, problem := range old {
		if !slices.ContainsFunc(list, same(problem)) {
			log.Info("problem is gone", "where", problem.Where, "problem", problem.Message)
		}
	}
	p.found[finder] = list
	if len(list) == 0 {
		delete(p.found, finder)
	}
}

// all returns the problems by place.
func (p *problems) all() []api.Problem {
	list := []api.Problem{}
	for _, finder := range slices.Sorted(maps.Keys(p.found)) {
		list = append(list, p.found[finder]...)
	}
	slices.SortStableFunc(list, func(a, b api.Problem) int { return strings.Compare(a.Where, b.Where) })
	return list
}

// stepFinder is the finder of a step's problem; what a step cannot do keeps the node from being ready.
func stepFinder(step string) string { return stepPrefix + step }

const stepPrefix = "step "

// ofSteps returns the problems of steps, by step.
func (p *problems) ofSteps() []api.Problem {
	var list []api.Problem
	for _, finder := range slices.Sorted(maps.Keys(p.found)) {
		if strings.HasPrefix(finder, stepPrefix) {
			list = append(list, p.found[finder]...)
		}
	}
	return list
}

func same(a api.Problem) func(api.Problem) bool {
	return func(b api.Problem) bool { return a.Where == b.Where && a.Message == b.Message }
}
