package cpu

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"sync"
)

type taskKey struct{}

// FromContext returns the task of a request that [Tokens.Handler] serves, or nil.
func FromContext(ctx context.Context) *Task {
	task, _ := ctx.Value(taskKey{}).(*Task)
	return task
}

// Handler returns a handler that serves each request as a task. The task is paused while the body of
// the request is read and the response is written.
func (t *Tokens) Handler(source func(*http.Request) Source, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		task := t.NewTask(source(r))
		defer task.Pause()
		task.Resume()
		r = r.WithContext(context.WithValue(r.Context(), taskKey{}, task))
		r.Body = &pausingBody{r.Body, task}
		out := &pausingWriter{ResponseWriter: w, task: task}
		next.ServeHTTP(out, r)
		task.Pause()
		out.end() // not after a panic, so that there can still be an error response
	})
}

// pausingBody pauses a task while it reads.
type pausingBody struct {
	io.ReadCloser

	task *Task
}

func (b *pausingBody) Read(p []byte) (n int, err error) {
	b.task.Wait(func() { n, err = b.ReadCloser.Read(p) })
	return n, err
}

// pausingWriter pauses a task while it writes. It buffers the response, because each pause may take a
// while.
type pausingWriter struct {
	http.ResponseWriter

	task   *Task
	buffer *bufio.Writer // nil before the first write, since the request may wait for long
}

// writeBytes is the number of bytes that a pausingWriter buffers.
const writeBytes = 32 << 10

var writeBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, writeBytes) }}

func (w *pausingWriter) Write(p []byte) (int, error) {
	if w.buffer == nil {
		w.buffer, _ = writeBuffers.Get().(*bufio.Writer)
		w.buffer.Reset(pausedWriter{w.ResponseWriter, w.task})
	}
	return w.buffer.Write(p)
}

// end writes the rest of the response.
func (w *pausingWriter) end() {
	if w.buffer == nil {
		return
	}
	_ = w.buffer.Flush() // an error means that the client has disconnected
	w.buffer.Reset(nil)
	writeBuffers.Put(w.buffer)
}

// Unwrap is for [http.ResponseController].
func (w *pausingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// pausedWriter writes without a token.
type pausedWriter struct {
	to   io.Writer
	task *Task
}

func (w pausedWriter) Write(p []byte) (n int, err error) {
	w.task.Wait(func() { n, err = w.to.Write(p) })
	return n, err
}
