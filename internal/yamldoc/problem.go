package yamldoc

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with a document.
type Problem struct {
	// Where is "file:line:column", "file" when no line is to blame, or the name of a flag.
	Where string
	// Key is the path of the value, such as "dir.path" or "keys[0].port"; empty for the whole document.
	Key string
	// Message says what is wrong.
	Message string
	// Remedy says what to do about it; empty when the message says it already.
	Remedy string
}

// Text is the problem without its place: "key: message; remedy".
func (p Problem) Text() string {
	text := p.Message
	if p.Key != "" {
		text = p.Key + ": " + text
	}
	if p.Remedy != "" {
		text += "; " + p.Remedy
	}
	return text
}

// Error implements error: "where: key: message; remedy".
func (p Problem) Error() string {
	if p.Where == "" {
		return p.Text()
	}
	return p.Where + ": " + p.Text()
}

// Explain makes a problem from an error whose text follows the habit "message; remedy".
func Explain(err error) Problem {
	message, remedy, _ := strings.Cut(err.Error(), "; ")
	return Problem{Message: message, Remedy: remedy}
}

// ExplainAll makes problems from an error, joined or single, whose parts follow the habit
// "key: message; remedy", as those of cluster.Node.Validate do.
func ExplainAll(err error) Problems {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var problems Problems
		for _, part := range joined.Unwrap() {
			problems = append(problems, ExplainAll(part)...)
		}
		return problems
	}
	if err == nil {
		return nil
	}
	p := Explain(err)
	p.Key, p.Message, _ = strings.Cut(p.Message, ": ")
	return Problems{p}
}

// Problems are all the problems of a document, in its order. As an error it has one line for each.
type Problems []Problem

// maxProblems is how many problems of one document are worth reading.
const maxProblems = 20

// Error implements error.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Err returns ps as an error, nil when there are none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// limit cuts the list where nobody reads on, and says so.
func (ps Problems) limit(name string) Problems {
	if len(ps) <= maxProblems {
		return ps
	}
	more := Problem{Where: name, Message: fmt.Sprintf("%d more problems", len(ps)-maxProblems)}
	return append(ps[:maxProblems:maxProblems], more)
}
