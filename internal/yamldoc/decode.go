package yamldoc

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Decode sets what the document says in the struct that into points at, by its `yaml:"key"` tags, and
// leaves alone what it does not say. Fields are structs, slices, strings, integers, or implement
// encoding.TextUnmarshaler. An unknown or repeated key, a missing value and a value of the wrong type
// are problems; such a value leaves its field as it was, a list as a whole.
func (d *Document) Decode(into any) Problems { return d.decode(into, false) }

// DecodeAll is Decode for documents in which every key of every mapping must be there.
func (d *Document) DecodeAll(into any) Problems { return d.decode(into, true) }

func (d *Document) decode(into any, all bool) Problems {
	target := reflect.ValueOf(into).Elem()
	dec := decoder{doc: d, all: all, paths: paths(target.Type(), "")}
	root := d.root
	if root == nil {
		root = &ast.MappingNode{BaseNode: &ast.BaseNode{}}
	}
	dec.mapping(root, target, "")
	return dec.problems.limit(d.name)
}

type decoder struct {
	doc      *Document
	all      bool
	paths    []string // every key path of the target, for suggestions
	problems Problems
}

func (dec *decoder) problem(at *token.Position, key string, p Problem) {
	p.Where, p.Key = dec.doc.place(at), key
	dec.problems = append(dec.problems, p)
}

func (dec *decoder) value(node ast.Node, target reflect.Value, key string) {
	dec.doc.at[key] = position(node)
	switch {
	case isScalar(target):
		dec.scalar(node, target, key)
	case target.Kind() == reflect.Struct:
		dec.mapping(node, target, key)
	case target.Kind() == reflect.Slice:
		dec.list(node, target, key)
	default:
		panic(fmt.Sprintf("yamldoc: no decoding into %s", target.Type())) // an error of the caller's type, not of the document
	}
}

func (dec *decoder) mapping(node ast.Node, target reflect.Value, key string) {
	entries, ok := entriesOf(node)
	if !ok {
		dec.problem(position(node), key, Problem{Message: kindOf(node) + " where keys are expected", Remedy: "write a mapping, key: value"})
		return
	}
	fields := fieldsOf(target.Type())
	lines := map[string]int{} // of the keys seen
	for _, entry := range entries {
		at, name := entry.Key.GetToken().Position, entry.Key.GetToken().Value
		path := join(key, name)
		i := fields.index(name)
		switch {
		case i < 0:
			dec.problem(at, plain(path), Problem{Message: "unknown key", Remedy: unknownRemedy(name, fields.known(), dec.paths)})
		case lines[name] != 0:
			dec.problem(at, path, Problem{Message: fmt.Sprintf("given twice, first in line %d", lines[name]), Remedy: "keep one"})
		default:
			lines[name] = at.Line
			dec.value(entry.Value, target.Field(i), path)
		}
	}
	if dec.all {
		dec.missing(fields.known(), lines, key)
	}
}

func (dec *decoder) missing(known []string, seen map[string]int, key string) {
	for _, name := range known {
		if seen[name] == 0 {
			dec.problems = append(dec.problems, Problem{Where: dec.doc.Where(key), Key: join(key, name), Message: "missing", Remedy: "every key must be there; the file may be half-written"})
		}
	}
}

func (dec *decoder) list(node ast.Node, target reflect.Value, key string) {
	sequence, ok := node.(*ast.SequenceNode)
	if !ok {
		dec.problem(position(node), key, Problem{Message: kindOf(node) + " where a list is expected", Remedy: "write [a, b], or [] for none"})
		return
	}
	before := len(dec.problems)
	elements := reflect.MakeSlice(target.Type(), len(sequence.Values), len(sequence.Values))
	for i, element := range sequence.Values {
		dec.value(element, elements.Index(i), fmt.Sprintf("%s[%d]", key, i))
		if len(dec.problems) > maxProblems {
			break
		}
	}
	if len(dec.problems) == before {
		target.Set(elements)
	}
}

func (dec *decoder) scalar(node ast.Node, target reflect.Value, key string) {
	text, quoted, ok := scalarOf(node)
	if !ok {
		dec.problem(position(node), key, Problem{Message: kindOf(node) + " where one value is expected", Remedy: expected(target.Type())})
		return
	}
	if quoted && isInteger(target) {
		dec.problem(position(node), key, Problem{Message: quote(text) + " is text, not a number", Remedy: "write it without quotes"})
		return
	}
	if p := setText(target, text); p != nil {
		dec.problem(position(node), key, *p)
	}
}

// entriesOf returns the keys and values of a mapping.
func entriesOf(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch node := node.(type) {
	case *ast.MappingNode:
		return node.Values, true
	case *ast.MappingValueNode: // how the parser gives some mappings with one key
		return []*ast.MappingValueNode{node}, true
	}
	return nil, false
}

// scalarOf returns the text of a scalar as it is written, so that a name may be 007 and a mark 0x10.
func scalarOf(node ast.Node) (text string, quoted, ok bool) {
	switch node := node.(type) {
	case *ast.StringNode:
		tk := node.GetToken()
		return node.Value, tk.Type == token.SingleQuoteType || tk.Type == token.DoubleQuoteType, true
	case *ast.LiteralNode:
		return node.Value.Value, true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return node.GetToken().Value, false, true
	}
	return "", false, false
}

// kindOf names what stands where something else was expected.
func kindOf(node ast.Node) string {
	switch node.(type) {
	case nil, *ast.NullNode:
		return "no value"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	}
	return "one value"
}

// position is where a value starts: a mapping at its first key, everything else at its own token.
func position(node ast.Node) *token.Position {
	if node == nil {
		return nil
	}
	if entries, ok := entriesOf(node); ok && len(entries) > 0 && !strings.HasPrefix(node.GetToken().Value, "{") {
		return entries[0].Key.GetToken().Position
	}
	if tk := node.GetToken(); tk != nil {
		return tk.Position
	}
	return nil
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}
