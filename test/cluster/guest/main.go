// Command guest is the one program inside the test cluster that is neither Warren's nor Kubernetes': the first
// process of a node, and what the containers of the test's pods run. It is static and has no other files.
//
//	guest init HOSTNAME ROOT PROGRAMS    the first process of a node; see boot
//	guest pause                          the process that holds a pod's namespaces
//	guest serve PORT                     answers HTTP with the name of the pod, and UDP with what came
//	guest ask URL...                     prints what servers answer
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 4 && args[0] == "init":
		return boot(args[1], args[2], args[3])
	case len(args) == 1 && args[0] == "pause":
		pause()
		return nil
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) > 1 && args[0] == "ask":
		return ask(args[1:])
	}
	return errors.New("usage: guest init HOSTNAME ROOT PROGRAMS | ask URL... | pause | serve PORT")
}

// pause waits for the end of the pod. As the first process of its namespace it has no default for signals.
func pause() {
	go reap()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	<-stop
}

// reap waits for every process that lost its parent, so that none stays a zombie.
func reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for range ended {
		for pid := 1; pid > 0; {
			pid, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil)
		}
	}
}

// serve answers at a port until the container ends. A pod's host name is the pod's name.
func serve(port string) error {
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("look up the pod's name: %w", err)
	}
	packets, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return fmt.Errorf("answer datagrams: %w", err)
	}
	go echo(packets)
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, name) }
	return fmt.Errorf("answer HTTP: %w", http.ListenAndServe(":"+port, http.HandlerFunc(answer)))
}

func echo(packets net.PacketConn) {
	buffer := make([]byte, 65536)
	for {
		n, from, err := packets.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = packets.WriteTo(buffer[:n], from)
		}
	}
}

func ask(urls []string) error {
	client := http.Client{Timeout: 10 * time.Second}
	for _, url := range urls {
		response, err := client.Get(url)
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, response.Body)
		_ = response.Body.Close()
		if err != nil {
			return fmt.Errorf("read the answer of %s: %w", url, err)
		}
	}
	return nil
}
