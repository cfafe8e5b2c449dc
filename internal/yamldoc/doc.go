// Package yamldoc reads YAML that people and machines write for Warren: strictly, with the line of
// every value, and with all problems of a document at once instead of the first.
//
//	doc, err := yamldoc.Parse("warren.yaml", data) // syntax
//	problems := doc.Decode(&config)                // keys, types: every problem with its line
//	doc.Where("dir.path")                          // "warren.yaml:4:9", for whoever checks the values
//
// A document is one mapping of plain keys, lists and scalars. Anchors, aliases, tags, merge keys,
// directives and more than one document in a file are refused, and so are size and nesting beyond any
// honest use: records of other machines are read with this package.
//
// It knows nothing of what the keys mean and reads no files.
package yamldoc
