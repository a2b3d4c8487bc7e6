package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"sync"
)

// tally counts calls by method.
type tally map[string]int

// counters count what clients ask for. The program's own calls go past HTTP and are not counted.
type counters struct {
	mu       sync.Mutex
	total    int
	inFlight int
	peak     int
	soap     tally
	rest     tally
	clients  map[string]tally
	accounts map[string]tally
}

// CounterReport is what GET /counters answers.
type CounterReport struct {
	Total    int              `json:"total"`
	InFlight int              `json:"inFlight"`
	Peak     int              `json:"peakInFlight"`
	SOAP     tally            `json:"soap"`
	REST     tally            `json:"rest"`
	Clients  map[string]tally `json:"clients"`  // by User-Agent, SOAP and REST
	Accounts map[string]tally `json:"accounts"` // by account of the session, SOAP only
}

func newCounters() *counters {
	c := &counters{}
	c.reset()
	return c
}

func (c *counters) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total, c.peak = 0, c.inFlight
	c.soap, c.rest = tally{}, tally{}
	c.clients, c.accounts = map[string]tally{}, map[string]tally{}
}

func (c *counters) begin(method, client string, soap bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total++
	c.inFlight++
	c.peak = max(c.peak, c.inFlight)
	if soap {
		c.soap[method]++
	} else {
		c.rest[method]++
	}
	count(c.clients, client, method)
}

func (c *counters) end() {
	c.mu.Lock()
	c.inFlight--
	c.mu.Unlock()
}

func (c *counters) account(name, method string) {
	c.mu.Lock()
	count(c.accounts, name, method)
	c.mu.Unlock()
}

func count(tallies map[string]tally, key, method string) {
	if tallies[key] == nil {
		tallies[key] = tally{}
	}
	tallies[key][method]++
}

func (c *counters) report() CounterReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	report := CounterReport{
		Total: c.total, InFlight: c.inFlight, Peak: c.peak,
		SOAP: maps.Clone(c.soap), REST: maps.Clone(c.rest),
		Clients: map[string]tally{}, Accounts: map[string]tally{},
	}
	for name, t := range c.clients {
		report.Clients[name] = maps.Clone(t)
	}
	for name, t := range c.accounts {
		report.Accounts[name] = maps.Clone(t)
	}
	return report
}

// observed counts and delays the calls of clients before they reach the simulator.
func (in *Instance) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method, soap := restMethod(r), false
		if r.Method == http.MethodPost && isSOAP(r) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return // the client went away in the middle of its request
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			if name := soapMethod(body); name != "" {
				method, soap = name, true
			}
		}
		in.counters.begin(method, r.UserAgent(), soap)
		defer in.counters.end()
		in.delays.sleep(method)
		next.ServeHTTP(w, r)
	})
}

func isSOAP(r *http.Request) bool {
	return r.Header.Get("SOAPAction") != "" ||
		strings.HasPrefix(r.Header.Get("Content-Type"), "text/xml")
}

// soapMethod is the name of the first element in the SOAP body, or "".
func soapMethod(body []byte) string {
	decoder := xml.NewDecoder(bytes.NewReader(body))
	inBody := false
	for {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		start, ok := token.(xml.StartElement)
		switch {
		case !ok:
		case inBody:
			return start.Name.Local
		case start.Name.Local == "Body":
			inBody = true
		}
	}
}

var restIdentifier = regexp.MustCompile(`/(id:[^/]+|[0-9a-f]{8}-[0-9a-f-]{27}|urn:[^/]+)`)

// restMethod names a REST call with its identifiers left out, so that calls add up.
func restMethod(r *http.Request) string {
	name := r.Method + " " + restIdentifier.ReplaceAllString(r.URL.Path, "/*")
	if strings.HasPrefix(r.URL.Path, "/nfc/") {
		name = r.Method + " /nfc/*"
	}
	if action := r.URL.Query().Get("~action"); action != "" {
		name += "?~action=" + action
	}
	return name
}
