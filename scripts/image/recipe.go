package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// recipe is what a Dockerfile says.
type recipe struct {
	copies     []copied
	env        []string
	entrypoint []string
}

// copied is a file: where it is in the context, and its path in the image.
type copied struct{ from, to string }

// parseRecipe reads a Dockerfile that needs nothing but files of the context. Every other instruction is an error:
// an image that only a container engine can build would need a registry.
func parseRecipe(text string) (recipe, error) {
	var r recipe
	begun := false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		if err := r.instruct(word, strings.TrimSpace(rest), begun); err != nil {
			return recipe{}, fmt.Errorf("line %d: %w", i+1, err)
		}
		begun = true
	}
	if len(r.copies) == 0 || len(r.entrypoint) == 0 {
		return recipe{}, errors.New("COPY and ENTRYPOINT are missing")
	}
	return r, nil
}

func (r *recipe) instruct(word, rest string, begun bool) error {
	fields := strings.Fields(rest)
	switch {
	case !begun:
		if word != "FROM" || rest != "scratch" {
			return errors.New("the first instruction is not FROM scratch")
		}
	case word == "COPY" && len(fields) == 2 && strings.HasPrefix(fields[1], "/") && !strings.HasSuffix(fields[1], "/"):
		r.copies = append(r.copies, copied{fields[0], fields[1]})
	case word == "ENV" && len(fields) == 1 && strings.Contains(rest, "="):
		r.env = append(r.env, rest)
	case word == "ENTRYPOINT":
		if err := json.Unmarshal([]byte(rest), &r.entrypoint); err != nil {
			return fmt.Errorf("ENTRYPOINT is not a list of words: %w", err)
		}
	default:
		return fmt.Errorf("%s %s: only COPY FILE /PATH, ENV NAME=VALUE and ENTRYPOINT are understood", word, rest)
	}
	return nil
}
