package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	stageCall = "call" // the call itself answers with the fault
	stageTask = "task" // the call starts a task that fails with it
)

// FaultSpec names a vSphere fault, such as InsufficientResourcesFault, and its fields as the JSON
// of the type (`{"invalidProperty": "spec.location"}`).
type FaultSpec struct {
	Type   string          `json:"type"`
	Fields json.RawMessage `json:"fields,omitempty"`
}

// FaultRule says which calls of clients fail, and how. Empty selectors match everything.
type FaultRule struct {
	ID          string    `json:"id"`
	Method      string    `json:"method"`
	Type        string    `json:"type,omitempty"`    // of the object the method is called on
	Object      string    `json:"object,omitempty"`  // its name or moRef, or the name in the request
	Account     string    `json:"account,omitempty"` // of the session
	Fault       FaultSpec `json:"fault"`
	Message     string    `json:"message,omitempty"`
	Stage       string    `json:"stage"`
	Probability float64   `json:"probability"` // 0 means 1
	Skip        int       `json:"skip,omitempty"`
	Count       int       `json:"count,omitempty"` // 0: no end
	DelayMS     int       `json:"delayMs,omitempty"`

	Seen int `json:"seen"` // calls that matched
	Hits int `json:"hits"` // of these, calls that failed
}

type faultRules struct {
	mu    sync.Mutex
	next  int
	rules []*FaultRule
}

var typeNamed = types.TypeFunc()

// build makes the fault; object fills the fields that clients insist on and the rule left out.
func (s FaultSpec) build(object moRef) (types.BaseMethodFault, error) {
	kind, ok := typeNamed(s.Type)
	if !ok {
		return nil, fmt.Errorf("no vSphere type is called %q", s.Type)
	}
	value := reflect.New(kind)
	fault, ok := value.Interface().(types.BaseMethodFault)
	if !ok {
		return nil, fmt.Errorf("%s is not a fault", s.Type)
	}
	if len(s.Fields) > 0 {
		decoder := json.NewDecoder(strings.NewReader(string(s.Fields)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(fault); err != nil {
			return nil, fmt.Errorf("fields of %s: %w", s.Type, err)
		}
	}
	fillMandatory(fault, object)
	return fault, nil
}

func fillMandatory(fault types.BaseMethodFault, object moRef) {
	switch f := fault.(type) {
	case *types.NoPermission:
		fillPermission(f, object, "System.Modify")
	case *types.NotAuthenticated:
		fillPermission(&f.NoPermission, object, "System.View")
	case *types.ManagedObjectNotFound:
		fillReference(&f.Obj, object)
	case *types.DuplicateName:
		fillReference(&f.Object, object)
	case *types.TaskInProgress:
		fillReference(&f.Task, moRef{Type: "Task", Value: "task-0"})
	}
}

func fillPermission(f *types.NoPermission, object moRef, privilege string) {
	if f.Object == nil {
		f.Object = &object
	}
	if f.PrivilegeId == "" {
		f.PrivilegeId = privilege
	}
}

func fillReference(field *moRef, value moRef) {
	if field.Value == "" {
		*field = value
	}
}

// add checks the rule and puts it behind the others; the first that matches is used.
func (f *faultRules) add(rule FaultRule) (*FaultRule, error) {
	if rule.Stage == "" {
		rule.Stage = stageCall
	}
	if rule.Stage != stageCall && rule.Stage != stageTask {
		return nil, fmt.Errorf("stage is %q, it can be %q or %q", rule.Stage, stageCall, stageTask)
	}
	if rule.Probability == 0 {
		rule.Probability = 1
	}
	if rule.Stage == stageTask && !canFailInTask(rule.Method) {
		return nil, fmt.Errorf("method %q starts no task that can be made to fail", rule.Method)
	}
	if _, err := rule.Fault.build(moRef{Type: "Folder", Value: "group-d1"}); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if rule.ID == "" {
		f.next++
		rule.ID = fmt.Sprintf("rule-%d", f.next)
	}
	rule.Seen, rule.Hits = 0, 0
	f.rules = append(f.rules, &rule)
	return &rule, nil
}

func (f *faultRules) list() []FaultRule {
	f.mu.Lock()
	defer f.mu.Unlock()
	rules := make([]FaultRule, 0, len(f.rules))
	for _, rule := range f.rules {
		rules = append(rules, *rule)
	}
	return rules
}

// remove drops one rule, or all of them when id is empty.
func (f *faultRules) remove(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.rules[:0]
	for _, rule := range f.rules {
		if id != "" && rule.ID != id {
			kept = append(kept, rule)
		}
	}
	f.rules = kept
}

// pick is the rule that this call runs into, as it was at this moment, or nil.
func (f *faultRules) pick(account, objectName string, method *simulator.Method) *FaultRule {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, rule := range f.rules {
		if !rule.matches(account, objectName, method) {
			continue
		}
		if rule.Count > 0 && rule.Hits >= rule.Count {
			continue
		}
		if rule.Probability < 1 && rand.Float64() >= rule.Probability {
			continue
		}
		rule.Seen++
		if rule.Seen <= rule.Skip {
			continue
		}
		rule.Hits++
		picked := *rule
		return &picked
	}
	return nil
}

func (r *FaultRule) matches(account, objectName string, method *simulator.Method) bool {
	return selects(r.Method, method.Name) &&
		selects(r.Type, method.This.Type) &&
		selects(r.Account, account) &&
		(selects(r.Object, objectName) || selects(r.Object, method.This.Value) ||
			selects(r.Object, requestedName(method)))
}

func selects(selector, value string) bool {
	return selector == "" || selector == "*" || selector == value
}

// requestedName is the name that the request gives to a new object, or "".
func requestedName(method *simulator.Method) string {
	body := reflect.Indirect(reflect.ValueOf(method.Body))
	for _, path := range []string{"Name", "Config.Name"} {
		value := body
		for _, step := range strings.Split(path, ".") {
			if value.Kind() == reflect.Struct {
				value = value.FieldByName(step)
			}
		}
		if value.IsValid() && value.Kind() == reflect.String && value.String() != "" {
			return value.String()
		}
	}
	return ""
}

// inject answers a call that a rule picked: with a fault, or with a receiver whose task fails.
func (in *Instance) inject(
	rule *FaultRule, method *simulator.Method,
) (*failingTask, types.BaseMethodFault) {
	time.Sleep(time.Duration(rule.DelayMS) * time.Millisecond)
	fault, err := rule.Fault.build(method.This)
	if err != nil { // add has checked it
		return nil, &types.SystemErrorFault{Reason: err.Error()}
	}
	if rule.Message != "" {
		fault.GetMethodFault().FaultMessage = []types.LocalizableMessage{
			{Key: "vcsim.injected", Message: rule.Message},
		}
	}
	if rule.Stage == stageTask {
		return in.failTask(method.This, fault), nil
	}
	return nil, fault
}

// faultBody is a fault as the answer of a method whose body type the caller does not know.
type faultBody struct {
	Reason *soap.Fault `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
}

func (b *faultBody) Fault() *soap.Fault { return b.Reason }

func faulty(fault types.BaseMethodFault) soap.HasFault {
	return &faultBody{Reason: simulator.Fault("", fault)}
}
