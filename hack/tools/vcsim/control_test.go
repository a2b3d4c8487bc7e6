package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestSOAPMethod(t *testing.T) {
	for text, want := range map[string]string{
		`<?xml version="1.0"?><soapenv:Envelope xmlns:soapenv="e"><soapenv:Header><Body2/></soapenv:Header><soapenv:Body><Login xmlns="urn:vim25"/></soapenv:Body></soapenv:Envelope>`: "Login",
		`<Envelope><Body></Body></Envelope>`: "",
		`not xml`:                            "",
	} {
		if got := soapMethod([]byte(text)); got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	}
}

func TestRestMethodLeavesIdentifiersOut(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/rest/com/vmware/cis/tagging/tag/id:urn:vmomi:x?~action=attach", nil)
	if got := restMethod(r); got != "POST /rest/com/vmware/cis/tagging/tag/*?~action=attach" {
		t.Error(got)
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct {
		cidr   string
		number int
		want   string
	}{
		{"10.0.0.0/8", 1, "10.0.0.1/8"},
		{"10.0.0.0/8", 65536, "10.1.0.0/8"},
		{"192.168.1.0/24", 257, "192.168.1.1/24"},
		{"fd20::/64", 16, "fd20::10/64"},
	} {
		if got := inRange(c.cidr, c.number).String(); got != c.want {
			t.Errorf("%s + %d: want %s, got %s", c.cidr, c.number, c.want, got)
		}
	}
}

func TestControlRefusesUnknownFields(t *testing.T) {
	l := newLab(t)
	c, err := startControl(l.in, "127.0.0.1:0")
	l.must(err)
	defer c.close()
	for path, body := range map[string]string{
		"/guest": `{"enable":false}`, "/faults": `{"methd":"x"}`, "/vms": `{"nam":"x"}`,
		"/delays": `{"method":"X","of":"other"}`, "/vms/power": `{"vm":"ubuntu","state":"sideways"}`,
		"/permissions": `{"account":"a","entity":"/no/where"}`, "/clusters": `{"cluster":"DC0_C0","drs":"maybe"}`,
	} {
		res, err := http.Post(c.url+path, "application/json", strings.NewReader(body))
		l.must(err)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s %s: %d", path, body, res.StatusCode)
		}
	}
	if _, err := startControl(l.in, "0.0.0.0:0"); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Error(errors.Join(err, errors.New("the control interface listens beyond loopback")))
	}
}
