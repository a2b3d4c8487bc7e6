package main

import (
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
)

// delays hold up calls before they are dispatched and tasks before they run. Neither holds a lock of
// the simulator meanwhile, so a slow call stalls nobody else.
type delays struct {
	strict bool

	mu       sync.Mutex
	everyone time.Duration
	calls    map[string]time.Duration
	tasks    map[string]time.Duration
}

func newDelays(everyone time.Duration, strict bool) *delays {
	return &delays{
		strict:   strict,
		everyone: everyone,
		calls:    map[string]time.Duration{},
		tasks:    map[string]time.Duration{},
	}
}

// DelayReport is what GET /delays answers, all in milliseconds.
type DelayReport struct {
	Every int64            `json:"every"`
	Calls map[string]int64 `json:"calls"`
	Tasks map[string]int64 `json:"tasks"`
}

// set delays the calls or the tasks of a method; "*" stands for all calls. Zero takes the delay away.
func (d *delays) set(method string, delay time.Duration, task bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case task && delay > 0:
		d.tasks[method] = delay
	case task:
		delete(d.tasks, method)
	case method == "*":
		d.everyone = delay
	case delay > 0:
		d.calls[method] = delay
	default:
		delete(d.calls, method)
	}
	d.publish()
}

func (d *delays) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.calls)
	clear(d.tasks)
	d.publish()
}

// publish hands the task delays to the simulator, which keeps them in a global. LockHandoff 0 makes
// it sleep without the lock of the task's object.
func (d *delays) publish() {
	methods := map[string]int{"LockHandoff": 0}
	for method, delay := range d.tasks {
		methods[method] = int(delay.Milliseconds()) // our own tasks bear the name of their method
		// Our CreateVM_Task and CloneVM_Task run the simulator's createVm inside; it must not add to them.
		if !d.strict || method != "CreateVM_Task" {
			methods[taskName(method)] = int(delay.Milliseconds())
		}
	}
	simulator.TaskDelay = simulator.DelayConfig{MethodDelay: methods}
}

func (d *delays) sleep(method string) {
	d.mu.Lock()
	delay := d.everyone + d.calls[method]
	d.mu.Unlock()
	// Clients that give up meanwhile do not stop a call: a real server executes it all the same.
	time.Sleep(delay)
}

func (d *delays) report() DelayReport {
	d.mu.Lock()
	defer d.mu.Unlock()
	report := DelayReport{
		Every: d.everyone.Milliseconds(), Calls: map[string]int64{}, Tasks: map[string]int64{},
	}
	for name, delay := range d.calls {
		report.Calls[name] = delay.Milliseconds()
	}
	for name, delay := range d.tasks {
		report.Tasks[name] = delay.Milliseconds()
	}
	return report
}

// taskName is what the simulator calls the task that a method starts.
func taskName(method string) string {
	switch method {
	case "CloneVM_Task", "ReconfigVM_Task", "CreateVM_Task", "RegisterVM_Task", "RelocateVM_Task",
		"UpgradeVM_Task", "CustomizeVM_Task":
		return strings.TrimSuffix(method, "VM_Task") + "Vm"
	case "PowerOnVM_Task", "PowerOffVM_Task", "SuspendVM_Task", "ResetVM_Task":
		return strings.TrimSuffix(method, "VM_Task")
	}
	return strings.TrimSuffix(method, "_Task")
}
