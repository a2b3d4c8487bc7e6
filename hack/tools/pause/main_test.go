package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	asPause             = "BANLIEUE_RUN_AS_PAUSE"
	prSetChildSubreaper = 36
	enough              = 10 * time.Second
	orphans             = `for i in 1 2 3 4 5; do (exit 0) & done; sleep 0.2 & sleep 0.2 &`
)

// TestMain runs this very binary as pause when told so, in the place of process 1: orphans of its
// children become its own.
func TestMain(m *testing.M) {
	if os.Getenv(asPause) == "" {
		os.Exit(m.Run())
	}
	if _, _, failed := syscall.Syscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); failed != 0 {
		os.Exit(3)
	}
	if err := exec.Command("sh", "-c", orphans).Run(); err != nil {
		os.Exit(4)
	}
	main()
}

func startPause(t *testing.T) *exec.Cmd {
	t.Helper()
	pause := exec.Command(os.Args[0])
	pause.Env = append(os.Environ(), asPause+"=yes")
	if err := pause.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pause.Process.Kill() })
	return pause
}

func children(t *testing.T, pid int) []string {
	t.Helper()
	var all []string
	// Any thread of a Go program may be the one that started or adopted a child.
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		all = append(all, strings.Fields(string(content))...)
	}
	return all
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(enough); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen within %s", what, enough)
		}
	}
}

func TestBuriesOrphansAndGoesOn(t *testing.T) {
	pause := startPause(t)
	eventually(t, "the adoption of the sleeping orphans", func() bool {
		return len(children(t, pause.Process.Pid)) > 0
	})
	eventually(t, "the burial of every orphan", func() bool {
		return len(children(t, pause.Process.Pid)) == 0
	})
	if err := pause.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("pause itself is gone: %v", err)
	}
}

func TestEndsWellWhenAskedTo(t *testing.T) {
	for _, word := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		pause := startPause(t)
		// The orphans are gone only after main has run, so signals are caught by then.
		eventually(t, "the adoption of the sleeping orphans", func() bool {
			return len(children(t, pause.Process.Pid)) > 0
		})
		eventually(t, "the burial of every orphan", func() bool {
			return len(children(t, pause.Process.Pid)) == 0
		})
		if err := pause.Process.Signal(word); err != nil {
			t.Fatal(err)
		}
		if err := pause.Wait(); err != nil {
			t.Errorf("pause did not end well on %v: %v", word, err)
		}
	}
}
