package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// control is the HTTP interface by which tests steer a simulated vCenter from outside. It is plain
// HTTP, so it listens on loopback only.
type control struct {
	in     *Instance
	server *http.Server
	url    string
}

func startControl(in *Instance, address string) (*control, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if ip := listener.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		_ = listener.Close()
		return nil, fmt.Errorf("the control address %s is not on loopback", address)
	}
	c := &control{in: in, url: "http://" + listener.Addr().String()}
	c.server = &http.Server{Handler: c.routes(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = c.server.Serve(listener) }()
	return c, nil
}

func (c *control) close() { _ = c.server.Close() }

// About is what GET /about answers.
type About struct {
	URL          string `json:"url"`
	Control      string `json:"control"`
	InstanceUUID string `json:"instanceUuid"`
	APIVersion   string `json:"apiVersion"`
	Thumbprint   string `json:"thumbprint"`
	Strict       bool   `json:"strict"`
}

func (c *control) about() About {
	about := c.in.serviceInstance().Content.About
	return About{
		URL: c.in.URL(), Control: c.url, InstanceUUID: about.InstanceUuid,
		APIVersion: about.ApiVersion, Thumbprint: c.in.Thumbprint(), Strict: c.in.options.Strict,
	}
}

var nothing = struct{}{}

func (c *control) routes() http.Handler {
	mux := http.NewServeMux()
	route := func(pattern string, handle func(*http.Request, []byte) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { answer(w, r, handle) })
	}
	in := c.in
	route("GET /healthz", func(*http.Request, []byte) (any, error) { return nothing, nil })
	route("GET /about", func(*http.Request, []byte) (any, error) { return c.about(), nil })
	route("POST /about", c.setAbout)

	route("GET /counters", func(*http.Request, []byte) (any, error) { return in.counters.report(), nil })
	route("POST /counters/reset", func(*http.Request, []byte) (any, error) {
		in.counters.reset()
		return nothing, nil
	})

	route("GET /faults", func(*http.Request, []byte) (any, error) { return in.rules.list(), nil })
	route("POST /faults", c.addFault)
	route("DELETE /faults", func(*http.Request, []byte) (any, error) {
		in.rules.remove("")
		return nothing, nil
	})
	route("DELETE /faults/{id}", func(r *http.Request, _ []byte) (any, error) {
		in.rules.remove(r.PathValue("id"))
		return nothing, nil
	})

	route("GET /delays", func(*http.Request, []byte) (any, error) { return in.delays.report(), nil })
	route("POST /delays", c.setDelay)
	route("DELETE /delays", func(*http.Request, []byte) (any, error) {
		in.delays.set("*", 0, false)
		in.delays.reset()
		return nothing, nil
	})

	route("GET /guest", c.guest)
	route("POST /guest", c.setGuest)

	route("GET /permissions", func(*http.Request, []byte) (any, error) { return in.access.list(), nil })
	route("POST /permissions", c.setPermission)
	route("DELETE /permissions", c.clearPermissions)
	route("POST /accounts", c.setAccount)
	route("DELETE /accounts/{name}", func(r *http.Request, _ []byte) (any, error) {
		in.accounts.remove(r.PathValue("name"))
		return nothing, nil
	})
	route("GET /sessions", func(*http.Request, []byte) (any, error) { return in.sessions(), nil })
	route("POST /sessions/terminate", c.terminateSessions)

	route("GET /inventory", func(*http.Request, []byte) (any, error) { return in.digest(), nil })
	c.inventoryRoutes(route)
	return mux
}

// answer runs one request; an error is the client's fault.
func answer(w http.ResponseWriter, r *http.Request, handle func(*http.Request, []byte) (any, error)) {
	body, err := io.ReadAll(r.Body)
	var result any
	if err == nil {
		result, err = handle(r, body)
	}
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		result = map[string]string{"error": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(result)
}

// decode reads a JSON object strictly: a misspelt field must not be a test that tests nothing.
func decode[T any](body []byte) (T, error) {
	var value T
	err := json.Unmarshal(body, &value)
	if err == nil {
		err = unknownFields(body, &value)
	}
	return value, err
}

func (c *control) setAbout(_ *http.Request, body []byte) (any, error) {
	wanted, err := decode[struct {
		InstanceUUID string `json:"instanceUuid"`
	}](body)
	if err != nil {
		return nil, err
	}
	if wanted.InstanceUUID == "" {
		return nil, errors.New("instanceUuid is missing")
	}
	ctx := c.in.context()
	service := c.in.serviceInstance()
	ctx.WithLock(service, func() { service.Content.About.InstanceUuid = wanted.InstanceUUID })
	return c.about(), nil
}

func (c *control) addFault(_ *http.Request, body []byte) (any, error) {
	rule, err := decode[FaultRule](body)
	if err != nil {
		return nil, err
	}
	return c.in.rules.add(rule)
}

func (c *control) setDelay(_ *http.Request, body []byte) (any, error) {
	wanted, err := decode[struct {
		Method       string `json:"method"`
		Milliseconds int64  `json:"milliseconds"`
		Of           string `json:"of"` // call | task
	}](body)
	if err != nil {
		return nil, err
	}
	task := wanted.Of == stageTask
	switch {
	case wanted.Method == "":
		return nil, errors.New("method is missing; * stands for all calls")
	case wanted.Of != "" && wanted.Of != stageCall && !task:
		return nil, fmt.Errorf("of is %q, it can be %q or %q", wanted.Of, stageCall, stageTask)
	case task && wanted.Method == "*":
		return nil, errors.New("name the method whose tasks are delayed")
	}
	c.in.delays.set(wanted.Method, time.Duration(wanted.Milliseconds)*time.Millisecond, task)
	return c.in.delays.report(), nil
}

func (c *control) guest(*http.Request, []byte) (any, error) {
	settings, special := c.in.guests.current()
	return map[string]any{"settings": settings, "machines": special}, nil
}

func (c *control) setGuest(r *http.Request, body []byte) (any, error) {
	var known GuestSettings
	if err := unknownFields(body, &known); err != nil {
		return nil, err
	}
	return c.in.guests.change(r.URL.Query().Get("machine"), body)
}

func (c *control) setPermission(_ *http.Request, body []byte) (any, error) {
	permission, err := decode[Permission](body)
	if err != nil {
		return nil, err
	}
	if err := c.in.access.set(permission); err != nil {
		return nil, err
	}
	return c.in.access.list(), nil
}

func (c *control) clearPermissions(r *http.Request, _ []byte) (any, error) {
	query := r.URL.Query()
	if err := c.in.access.clear(query.Get("account"), query.Get("entity")); err != nil {
		return nil, err
	}
	return c.in.access.list(), nil
}

func (c *control) setAccount(_ *http.Request, body []byte) (any, error) {
	account, err := decode[struct {
		Name     string `json:"name"`
		Password string `json:"password"`
	}](body)
	if err != nil {
		return nil, err
	}
	if account.Name == "" || account.Password == "" {
		return nil, errors.New("name and password are needed")
	}
	c.in.accounts.set(account.Name, account.Password)
	return nothing, nil
}

// SessionReport is one element of GET /sessions.
type SessionReport struct {
	Key       string `json:"key"`
	Account   string `json:"account"`
	UserAgent string `json:"userAgent"`
	Calls     int64  `json:"calls"`
}

func (in *Instance) sessions() []SessionReport {
	found := []SessionReport{}
	for _, session := range in.sessionList() {
		found = append(found, SessionReport{
			Key: session.Key, Account: session.UserName, UserAgent: session.UserAgent, Calls: session.CallCount,
		})
	}
	return found
}

func (in *Instance) sessionList() []types.UserSession {
	manager := in.registry().SessionManager()
	view, ok := in.context().Session.Get(manager.Self).(*simulator.SessionManager)
	if !ok {
		return nil
	}
	return view.SessionList
}

func (c *control) terminateSessions(_ *http.Request, body []byte) (any, error) {
	wanted, err := decode[struct {
		Account string `json:"account"`
		Key     string `json:"key"`
	}](body)
	if err != nil {
		return nil, err
	}
	var ended []string
	for _, session := range c.in.sessionList() {
		if (wanted.Account != "" && session.UserName != wanted.Account) ||
			(wanted.Key != "" && session.Key != wanted.Key) {
			continue
		}
		res := c.in.registry().SessionManager().TerminateSession(c.in.context(), &types.TerminateSession{
			SessionId: []string{session.Key},
		})
		if res.Fault() == nil {
			ended = append(ended, session.Key)
		}
	}
	c.in.hub.pokeAll() // waiting calls find out
	return map[string]any{"terminated": len(ended)}, nil
}
