// Command image builds the container image of Warren from its Dockerfile, without a container engine and
// without a registry, as an archive that `docker load`, `podman load` and `ctr images import` read:
//
//	go run ./scripts/image -tag localhost/warren:dev -out bin/warren-image.tar
//
// The same files give the same image, bit by bit, so that its digest says what is in it.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	var b build
	flag.StringVar(&b.dockerfile, "file", "deploy/Dockerfile", "the Dockerfile, of which FROM scratch, COPY, ENV and ENTRYPOINT are understood")
	flag.StringVar(&b.context, "context", ".", "folder from which files are copied")
	flag.StringVar(&b.tag, "tag", "localhost/warren:dev", "name of the image")
	out := flag.String("out", "bin/warren-image.tar", "the archive")
	flag.Parse()
	if err := run(b, *out); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

func run(b build, out string) error {
	archive, id, err := b.run()
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, archive, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %s, image %s, %d bytes\n", out, b.tag, id, len(archive))
	return nil
}
