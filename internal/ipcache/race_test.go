//go:build race

package ipcache_test

const raceEnabled = true
