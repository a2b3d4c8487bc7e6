package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cert-manager/cert-manager/pkg/controller"
)

func TestAnswersOfTheCommandLine(t *testing.T) {
	for _, line := range []struct {
		arguments      string
		usable         bool
		out, complaint string
	}{
		{"", false, "", "usage: cert-manager ROLE"},
		{"help", true, "usage: cert-manager ROLE", ""},
		{"version", true, "canary", ""},
		{"acmesolver", false, "", `no role is called "acmesolver"`},
		{"controller --help", true, "--cluster-resource-namespace", ""},
		{"controller --no-such-flag", false, "", "unknown flag: --no-such-flag"},
		{"cainjector extra", false, "", `cainjector takes no argument "extra"`},
		{"webhook --help", true, "--dynamic-serving-ca-secret-name", ""},
	} {
		var out, complaints bytes.Buffer
		err := command(context.Background(), strings.Fields(line.arguments), &out, &complaints)
		if usable := err == nil; usable != line.usable || !usable && !errors.Is(err, errUsage) {
			t.Errorf("%q answered %v", line.arguments, err)
		}
		if !strings.Contains(out.String(), line.out) || (line.out == "") != (out.Len() == 0) {
			t.Errorf("%q printed %q", line.arguments, out.String())
		}
		if !strings.Contains(complaints.String(), line.complaint) {
			t.Errorf("%q complained %q", line.arguments, complaints.String())
		}
	}
}

// A controller that a new version of upstream links in would run unseen, or miss its settings.
func TestRunsTheseControllersAndNoOther(t *testing.T) {
	want := []string{
		"certificaterequests-approver",
		"certificaterequests-issuer-ca",
		"certificaterequests-issuer-selfsigned",
		"certificates-issuing",
		"certificates-key-manager",
		"certificates-readiness",
		"certificates-request-manager",
		"certificates-revision-manager",
		"certificates-trigger",
		"clusterissuers",
		"issuers",
	}
	if got := slices.Sorted(maps.Keys(controller.Known())); !slices.Equal(got, want) {
		t.Errorf("the controllers are %q", got)
	}
}

func TestAClusterThatCannotBeReachedEndsTheRole(t *testing.T) {
	arguments := []string{"cainjector", "--kubeconfig", t.TempDir() + "/missing"}
	err := command(context.Background(), arguments, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "cainjector: ") {
		t.Errorf("cainjector without a cluster answered %v", err)
	}
}
