package main

import (
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

type moRef = types.ManagedObjectReference

// hub hears of every change of the inventory and tells those who wait for one. The simulator calls
// it while it holds locks of objects, so nothing here waits or calls back.
type hub struct {
	in *Instance

	mu     sync.Mutex
	subs   map[*subscription]struct{}
	gone   map[moRef]struct{} // removed, though the registry may still hold them for a moment
	tasks  map[moRef]chan struct{}
	busy   map[moRef]map[moRef]string // machine -> its unfinished tasks -> their names
	timers map[moRef]*time.Timer
	closed bool
}

// subscription collects what changed since it was last drained.
type subscription struct {
	signal chan struct{}

	mu    sync.Mutex
	dirty map[moRef]struct{}
	all   bool
}

func newHub(in *Instance) *hub {
	return &hub{
		in:     in,
		subs:   map[*subscription]struct{}{},
		gone:   map[moRef]struct{}{},
		tasks:  map[moRef]chan struct{}{},
		busy:   map[moRef]map[moRef]string{},
		timers: map[moRef]*time.Timer{},
	}
}

// Reference makes the hub a handler of the registry.
func (*hub) Reference() moRef { return moRef{Type: "BanlieueHub", Value: "hub"} }

// PutObject hears of new objects, and of machines that were moved.
func (h *hub) PutObject(_ *simulator.Context, obj mo.Reference) {
	ref := obj.Reference()
	h.mu.Lock()
	delete(h.gone, ref)
	if task, ok := obj.(*simulator.Task); ok && task.Info.Entity != nil {
		h.begin(*task.Info.Entity, ref, task.Info.Name)
	}
	h.mu.Unlock()
	if ref.Type == "VirtualMachine" {
		h.in.guests.created(ref)
	}
	h.poke(ref)
}

// UpdateObject hears of changed properties.
func (h *hub) UpdateObject(_ *simulator.Context, obj mo.Reference, changes []types.PropertyChange) {
	ref := obj.Reference()
	switch x := obj.(type) {
	case *mo.Task:
		if finished(x.Info.State) {
			h.end(x)
		}
	case *mo.VirtualMachine:
		for _, change := range changes {
			switch change.Name {
			case "runtime.powerState":
				h.in.guests.powerChanged(ref, x.Runtime.PowerState)
			case "config.hardware.device":
				h.in.guests.devicesChanged(ref)
			}
		}
	}
	h.poke(ref)
}

// RemoveObject hears of destroyed objects.
func (h *hub) RemoveObject(_ *simulator.Context, ref moRef) {
	h.mu.Lock()
	h.gone[ref] = struct{}{}
	delete(h.busy, ref)
	h.mu.Unlock()
	h.in.guests.removed(ref)
	h.poke(ref)
}

func finished(state types.TaskInfoState) bool {
	return state == types.TaskInfoStateSuccess || state == types.TaskInfoStateError
}

func (h *hub) begin(entity, task moRef, name string) {
	if entity.Type != "VirtualMachine" || entity.ServerGUID != "" { // a private reference
		return
	}
	if h.busy[entity] == nil {
		h.busy[entity] = map[moRef]string{}
	}
	h.busy[entity][task] = name
}

func (h *hub) end(task *mo.Task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if waiting, ok := h.tasks[task.Self]; ok {
		delete(h.tasks, task.Self)
		close(waiting)
	}
	if task.Info.Entity != nil {
		if running := h.busy[*task.Info.Entity]; running != nil {
			delete(running, task.Self)
			if len(running) == 0 {
				delete(h.busy, *task.Info.Entity)
			}
		}
	}
	if h.in.options.TaskRetention > 0 && !h.closed && h.timers[task.Self] == nil {
		ref := task.Self
		h.timers[ref] = time.AfterFunc(h.in.options.TaskRetention, func() { h.forget(ref) })
	}
}

func (h *hub) forget(task moRef) {
	h.mu.Lock()
	delete(h.timers, task)
	h.mu.Unlock()
	h.in.registry().Remove(h.in.context(), task)
}

// unfinishedTask is a task that runs on the machine, if there is one.
func (h *hub) unfinishedTask(machine moRef) (moRef, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for task := range h.busy[machine] {
		return task, true
	}
	return moRef{}, false
}

// wait blocks until the task is finished and returns what it came to.
func (h *hub) wait(ref moRef) (types.AnyType, types.BaseMethodFault) {
	task, ok := h.in.registry().Get(ref).(*simulator.Task)
	if !ok {
		return nil, &types.ManagedObjectNotFound{Obj: ref}
	}
	h.mu.Lock()
	done, ok := h.tasks[ref]
	if !ok {
		done = make(chan struct{})
		h.tasks[ref] = done
	}
	h.mu.Unlock()

	info := h.info(task)
	if !finished(info.State) {
		<-done
		info = h.info(task)
	}
	h.mu.Lock()
	if h.tasks[ref] == done { // it had finished before anybody could have told
		delete(h.tasks, ref)
	}
	h.mu.Unlock()
	if info.Error != nil {
		return nil, info.Error.Fault
	}
	return info.Result, nil
}

func (h *hub) info(task *simulator.Task) types.TaskInfo {
	ctx := h.in.context()
	var info types.TaskInfo
	ctx.WithLock(task, func() { info = task.Info })
	return info
}

func (h *hub) removed(ref moRef) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.gone[ref]
	return ok
}

func (h *hub) subscribe() *subscription {
	s := &subscription{signal: make(chan struct{}, 1), dirty: map[moRef]struct{}{}, all: true}
	h.mu.Lock()
	h.subs[s] = struct{}{}
	h.mu.Unlock()
	return s
}

func (h *hub) unsubscribe(s *subscription) {
	h.mu.Lock()
	delete(h.subs, s)
	h.mu.Unlock()
}

// poke tells all subscribers that an object changed.
func (h *hub) poke(ref moRef) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		s.add(ref)
	}
}

// pokeAll tells all subscribers that anything may have changed, permissions or sessions for one.
func (h *hub) pokeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		s.addAll()
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, timer := range h.timers {
		timer.Stop()
	}
}

func (s *subscription) add(ref moRef) {
	s.mu.Lock()
	s.dirty[ref] = struct{}{}
	s.mu.Unlock()
	s.wake()
}

func (s *subscription) addAll() {
	s.mu.Lock()
	s.all = true
	s.mu.Unlock()
	s.wake()
}

func (s *subscription) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// drain returns what changed since the last call; all means that anything may have.
func (s *subscription) drain() (dirty map[moRef]struct{}, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dirty, all = s.dirty, s.all
	s.dirty, s.all = map[moRef]struct{}{}, false
	return dirty, all
}

// forgetFinished drops all finished tasks at once.
func (h *hub) forgetFinished() int {
	forgotten := 0
	for _, object := range h.in.registry().AllReference("Task") {
		task, ok := object.(*simulator.Task)
		if ok && finished(h.info(task).State) {
			h.forget(task.Self)
			forgotten++
		}
	}
	return forgotten
}
