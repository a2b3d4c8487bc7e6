// Pause holds the namespaces of a pod open: it sleeps until SIGTERM or SIGINT, and buries the
// orphans that a shared PID namespace leaves to process 1.
package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// One place is enough for SIGCHLD: Go drops what a full channel cannot take, and a single
	// wake-up buries everything that is dead by then. Stops have their own channel so that
	// no flood of children can crowd one out.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	// Children may have died before anybody listened.
	reap()
	for {
		select {
		case <-stop:
			return
		case <-children:
			reap()
		}
	}
}

// reap collects every dead child without waiting for the living.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
	}
}
