package main

import (
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// The limits of a vCenter: what one answer holds when the client asks for more or says nothing.
const (
	maxObjectUpdates = 100
	maxObjects       = 1000
)

// gather is how long changes are gathered before a waiting call is answered.
const gather = 10 * time.Millisecond

// propertyCollector reads and watches properties with the eyes of the session's account. Unlike the
// simulator's it compares with what the client was told last, so it finds every change whoever made
// it, repeats an answer that was lost on the wire, and costs what the change costs and not what the
// inventory costs.
//
// The simulator makes the one of each session by reflection: the zero value has to work.
type propertyCollector struct {
	simulator.PropertyCollector

	mu      sync.Mutex
	filters []*propertyFilter
	pages   map[string]page
	changes *subscription
	version int
	cancel  chan struct{} // of the call that waits
	undo    []undo        // what the last answer told, until the client acknowledges it
	gone    bool
}

type page struct {
	size    int
	objects []types.ObjectContent
}

// undo restores what a filter believed of an object before the last answer.
type undo struct {
	filter *propertyFilter
	ref    moRef
	before known // nil: the client did not know the object
}

// CreateFilter refuses unknown objects unless the filter is told to report them.
func (pc *propertyCollector) CreateFilter(ctx *simulator.Context, req *types.CreateFilter) soap.HasFault {
	filter := newPropertyFilter(pc, req)
	if _, fault := filter.selected(ctx); fault != nil {
		return faulty(fault)
	}
	ctx.Session.Put(filter)
	pc.mu.Lock()
	pc.filters = append(pc.filters, filter)
	pc.Filter = append(pc.Filter, filter.Self)
	changes := pc.changes
	pc.mu.Unlock()
	if changes != nil {
		changes.wake()
	}
	return &methods.CreateFilterBody{Res: &types.CreateFilterResponse{Returnval: filter.Self}}
}

func (pc *propertyCollector) dropFilter(filter *propertyFilter) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	for i, f := range pc.filters {
		if f == filter {
			pc.filters = append(pc.filters[:i:i], pc.filters[i+1:]...)
			pc.Filter = append(pc.Filter[:i:i], pc.Filter[i+1:]...)
			return
		}
	}
}

// CreatePropertyCollector makes another one with filters of its own.
func (pc *propertyCollector) CreatePropertyCollector(
	ctx *simulator.Context, _ *types.CreatePropertyCollector,
) soap.HasFault {
	other := &propertyCollector{}
	other.Self.Type = "PropertyCollector"
	ctx.Session.Put(other)
	return &methods.CreatePropertyCollectorBody{
		Res: &types.CreatePropertyCollectorResponse{Returnval: other.Self},
	}
}

// DestroyPropertyCollector ends a waiting call with RequestCanceled.
func (pc *propertyCollector) DestroyPropertyCollector(
	ctx *simulator.Context, req *types.DestroyPropertyCollector,
) soap.HasFault {
	pc.mu.Lock()
	pc.gone = true
	filters := pc.filters
	pc.filters, pc.Filter, pc.undo = nil, nil, nil
	pc.interrupt()
	if pc.changes != nil {
		instanceOf(ctx).hub.unsubscribe(pc.changes)
		pc.changes = nil
	}
	pc.mu.Unlock()
	for _, filter := range filters {
		ctx.Session.Remove(ctx, filter.Self)
	}
	ctx.Session.Remove(ctx, req.This)
	return &methods.DestroyPropertyCollectorBody{Res: &types.DestroyPropertyCollectorResponse{}}
}

// CancelWaitForUpdates ends a waiting call with RequestCanceled.
func (pc *propertyCollector) CancelWaitForUpdates(
	_ *simulator.Context, _ *types.CancelWaitForUpdates,
) soap.HasFault {
	pc.mu.Lock()
	pc.interrupt()
	pc.mu.Unlock()
	return &methods.CancelWaitForUpdatesBody{Res: &types.CancelWaitForUpdatesResponse{}}
}

// interrupt ends the call that waits, if there is one. pc.mu is held.
func (pc *propertyCollector) interrupt() {
	if pc.cancel != nil {
		close(pc.cancel)
		pc.cancel = nil
	}
}

// WaitForUpdates is WaitForUpdatesEx without a limit.
func (pc *propertyCollector) WaitForUpdates(
	ctx *simulator.Context, req *types.WaitForUpdates,
) soap.HasFault {
	set, fault := pc.await(ctx, req.Version, types.WaitOptions{})
	if fault != nil {
		return faulty(fault)
	}
	return &methods.WaitForUpdatesBody{Res: &types.WaitForUpdatesResponse{Returnval: *set}}
}

// CheckForUpdates is WaitForUpdatesEx that does not wait.
func (pc *propertyCollector) CheckForUpdates(
	ctx *simulator.Context, req *types.CheckForUpdates,
) soap.HasFault {
	set, fault := pc.await(ctx, req.Version, types.WaitOptions{MaxWaitSeconds: types.NewInt32(0)})
	if fault != nil {
		return faulty(fault)
	}
	return &methods.CheckForUpdatesBody{Res: &types.CheckForUpdatesResponse{Returnval: set}}
}

// WaitForUpdatesEx answers with nothing when the time is over.
func (pc *propertyCollector) WaitForUpdatesEx(
	ctx *simulator.Context, req *types.WaitForUpdatesEx,
) soap.HasFault {
	var options types.WaitOptions
	if req.Options != nil {
		options = *req.Options
	}
	set, fault := pc.await(ctx, req.Version, options)
	if fault != nil {
		return faulty(fault)
	}
	return &methods.WaitForUpdatesExBody{Res: &types.WaitForUpdatesExResponse{Returnval: set}}
}

func (pc *propertyCollector) await(
	ctx *simulator.Context, version string, options types.WaitOptions,
) (*types.UpdateSet, types.BaseMethodFault) {
	cancel, fault := pc.begin(ctx, version)
	if fault != nil {
		return nil, fault
	}
	limit := maxObjectUpdates
	if n := int(options.MaxObjectUpdates); n > 0 && n < limit {
		limit = n
	}
	var timeout <-chan time.Time
	if wait := options.MaxWaitSeconds; wait != nil {
		timer := time.NewTimer(time.Duration(*wait) * time.Second)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		if !sessionLives(ctx) {
			return nil, &types.NotAuthenticated{
				NoPermission: types.NoPermission{Object: &pc.Self, PrivilegeId: "System.View"},
			}
		}
		set, signal, fault := pc.next(ctx, cancel, limit)
		if fault != nil || set != nil {
			return set, fault
		}
		if options.MaxWaitSeconds != nil && *options.MaxWaitSeconds == 0 {
			return nil, nil
		}
		select {
		case <-cancel:
			return nil, &types.RequestCanceled{}
		case <-timeout:
			return nil, nil
		case <-signal:
			time.Sleep(gather)
		}
	}
}

// begin takes note of what the client has got so far, and takes the turn from an earlier call.
func (pc *propertyCollector) begin(
	ctx *simulator.Context, version string,
) (chan struct{}, types.BaseMethodFault) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.gone {
		return nil, &types.ManagedObjectNotFound{Obj: pc.Self}
	}
	if pc.changes == nil {
		pc.changes = instanceOf(ctx).hub.subscribe()
	}
	switch {
	case version == "": // the client knows nothing
		for _, filter := range pc.filters {
			filter.reset()
		}
		pc.undo = nil
	case version == strconv.Itoa(pc.version): // it has got the last answer
		pc.undo = nil
	case version == strconv.Itoa(pc.version-1) && pc.undo != nil: // it has not
		pc.version--
		for i := len(pc.undo) - 1; i >= 0; i-- {
			pc.undo[i].filter.restore(pc.undo[i].ref, pc.undo[i].before)
		}
		pc.undo = nil
	default:
		return nil, &types.InvalidCollectorVersion{}
	}
	pc.interrupt()
	pc.cancel = make(chan struct{})
	return pc.cancel, nil
}

// next is what changed, or nil and the signal to wait for.
func (pc *propertyCollector) next(
	ctx *simulator.Context, cancel chan struct{}, limit int,
) (*types.UpdateSet, <-chan struct{}, types.BaseMethodFault) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.cancel != cancel {
		return nil, nil, &types.RequestCanceled{}
	}
	dirty, all := pc.changes.drain()
	for _, filter := range pc.filters {
		filter.mark(dirty, all)
	}
	set := &types.UpdateSet{}
	var told []undo
	for _, filter := range pc.filters {
		objects, steps, more, fault := filter.changes(ctx, limit-len(told))
		if fault != nil {
			return nil, nil, fault
		}
		told = append(told, steps...)
		missing := filter.missing(ctx)
		for _, object := range missing {
			told = append(told, undo{filter, object.Obj, nil})
		}
		if len(objects)+len(missing) > 0 {
			set.FilterSet = append(set.FilterSet, types.PropertyFilterUpdate{
				Filter: filter.Self, ObjectSet: objects, MissingSet: missing,
			})
		}
		if more {
			set.Truncated = types.NewBool(true)
		}
	}
	if len(told) == 0 {
		return nil, pc.changes.signal, nil
	}
	pc.version++
	pc.undo = told
	pc.cancel = nil
	set.Version = strconv.Itoa(pc.version)
	return set, nil, nil
}

// afterSession releases the collectors of a session that is about to end.
func (in *Instance) afterSession(ctx *simulator.Context) {
	for range 1000 {
		if !sessionLives(ctx) {
			break
		}
		time.Sleep(gather)
	}
	for _, object := range ctx.Session.Registry.AllReference("PropertyCollector") {
		if pc, ok := object.(*propertyCollector); ok {
			pc.release(in)
		}
	}
}

// release lets waiting calls find out that their session is over, and stops listening.
func (pc *propertyCollector) release(in *Instance) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	pc.gone = true
	if pc.changes != nil {
		in.hub.unsubscribe(pc.changes)
		pc.changes.wake()
	}
}

func sessionLives(ctx *simulator.Context) bool {
	if accountOf(ctx) == "" {
		return true
	}
	answer := ctx.Map.SessionManager().SessionIsActive(ctx, &types.SessionIsActive{
		SessionID: ctx.Session.Key, UserName: ctx.Session.UserName,
	})
	body, ok := answer.(*methods.SessionIsActiveBody)
	return ok && body.Res != nil && body.Res.Returnval
}

// RetrieveProperties is RetrievePropertiesEx in one page.
func (pc *propertyCollector) RetrieveProperties(
	ctx *simulator.Context, req *types.RetrieveProperties,
) soap.HasFault {
	if ctx.Session == nil {
		ctx = anonymousContext(ctx, req.SpecSet)
	}
	objects, fault := pc.retrieve(ctx, req.SpecSet)
	if fault != nil {
		return faulty(fault)
	}
	return &methods.RetrievePropertiesBody{Res: &types.RetrievePropertiesResponse{Returnval: objects}}
}

// RetrievePropertiesEx answers with a token when there is more than a page.
func (pc *propertyCollector) RetrievePropertiesEx(
	ctx *simulator.Context, req *types.RetrievePropertiesEx,
) soap.HasFault {
	if ctx.Session == nil {
		ctx = anonymousContext(ctx, req.SpecSet)
	}
	objects, fault := pc.retrieve(ctx, req.SpecSet)
	if fault != nil {
		return faulty(fault)
	}
	size := maxObjects
	if n := int(req.Options.MaxObjects); n > 0 && n < size {
		size = n
	}
	result := pc.paged(page{size, objects})
	body := &methods.RetrievePropertiesExBody{Res: &types.RetrievePropertiesExResponse{}}
	if len(result.Objects) > 0 {
		body.Res.Returnval = result
	}
	return body
}

// anonymousContext gives a client that has not logged in what anybody may read. The simulator lets
// it read nothing, not even the service instance.
func anonymousContext(ctx *simulator.Context, specs []types.PropertyFilterSpec) *simulator.Context {
	c := clone(ctx)
	c.Session = &simulator.Session{Registry: simulator.NewRegistry(), Map: ctx.Map}
	for _, spec := range specs {
		for _, object := range spec.ObjectSet {
			if object.Obj.Type == "SessionManager" { // without the sessions of others
				empty := &simulator.SessionManager{}
				empty.Self = object.Obj
				c.Session.Registry.Put(empty)
			}
		}
	}
	return c
}

// ContinueRetrievePropertiesEx is the next page.
func (pc *propertyCollector) ContinueRetrievePropertiesEx(
	ctx *simulator.Context, req *types.ContinueRetrievePropertiesEx,
) soap.HasFault {
	pc.mu.Lock()
	rest, ok := pc.pages[req.Token]
	delete(pc.pages, req.Token)
	pc.mu.Unlock()
	if !ok {
		return faulty(&types.InvalidArgument{InvalidProperty: "token"})
	}
	return &methods.ContinueRetrievePropertiesExBody{
		Res: &types.ContinueRetrievePropertiesExResponse{Returnval: *pc.paged(rest)},
	}
}

// CancelRetrievePropertiesEx forgets the rest.
func (pc *propertyCollector) CancelRetrievePropertiesEx(
	_ *simulator.Context, req *types.CancelRetrievePropertiesEx,
) soap.HasFault {
	pc.mu.Lock()
	delete(pc.pages, req.Token)
	pc.mu.Unlock()
	return &methods.CancelRetrievePropertiesExBody{Res: &types.CancelRetrievePropertiesExResponse{}}
}

func (pc *propertyCollector) paged(p page) *types.RetrieveResult {
	if len(p.objects) <= p.size {
		return &types.RetrieveResult{Objects: p.objects}
	}
	token := uuid.NewString()
	pc.mu.Lock()
	if pc.pages == nil {
		pc.pages = map[string]page{}
	}
	pc.pages[token] = page{p.size, p.objects[p.size:]}
	pc.mu.Unlock()
	return &types.RetrieveResult{Objects: p.objects[:p.size], Token: token}
}

// retrieve reads what the specs select, each object once.
func (pc *propertyCollector) retrieve(
	ctx *simulator.Context, specs []types.PropertyFilterSpec,
) ([]types.ObjectContent, types.BaseMethodFault) {
	var refs []moRef
	var sets []types.PropertySpec
	seen := map[moRef]bool{}
	for _, spec := range specs {
		found, fault := selection(ctx, spec)
		if fault != nil {
			return nil, fault
		}
		for _, ref := range found {
			if !seen[ref] {
				seen[ref] = true
				refs = append(refs, ref)
			}
		}
		sets = append(sets, spec.PropSet...)
	}
	return pc.read(ctx, sets, refs)
}
