package model_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/datapath/model"
)

var update = flag.Bool("update", false, "write bpf/reason.h")

const headerPath = "../bpf/reason.h"

// TestReasonHeader holds the C enum against the Go one, which it is rendered from.
func TestReasonHeader(t *testing.T) {
	want := renderHeader()
	if *update {
		if err := os.WriteFile(headerPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(headerPath)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what reason.go says; run make generate (-want +got):\n%s", headerPath, diff)
	}
}

func renderHeader() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */")
	line("/* Code generated from internal/datapath/model/reason.go by make generate; DO NOT EDIT. */")
	line("#pragma once\n")
	line("#include <stdbool.h>\n")
	line("/* clang-format off */\n")
	line("enum program {")
	for _, p := range model.Programs() {
		line("\tPROGRAM_%s = %d,", strings.ToUpper(p.String()), p)
	}
	line("\tPROGRAM_MAX = %d,\n};\n", len(model.Programs()))
	line("/* Why a packet left a program as it did. */")
	line("enum reason {\n\tREASON_NONE = 0,")
	for _, r := range model.Reasons() {
		line("\t/* %s */\n\t%s = %d,", r.Description(), cName(r), r)
	}
	line("\tREASON_MAX = %d, /* room for reasons to come */\n};\n", model.MaxReason)
	line("/* Whether packets that leave for this reason are counted by peer as well. */")
	line("static inline __attribute__((always_inline)) bool reason_names_peer(enum reason reason)\n{")
	line("\tswitch (reason) {")
	for _, r := range model.Reasons() {
		if r.PerPeer() {
			line("\tcase %s:", cName(r))
		}
	}
	line("\t\treturn true;\n\tdefault:\n\t\treturn false;\n\t}\n}\n\n/* clang-format on */")
	return b.String()
}

func cName(r model.Reason) string { return "REASON_" + strings.ToUpper(r.String()) }
