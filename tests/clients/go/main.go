// Command client drives the Kafka clients franz-go and sarama by lines of JSON.
//
// Each line of standard input is a command with the field "do". Each command has one line of output, {"result": …} or
// {"error": …}. The first argument is the client, the second the addresses of the brokers.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

const timeout = 60 * time.Second

// line is a line of input: a command, a record that follows it, or the end of the records.
type line struct {
	Do          string            `json:"do"`
	Topic       string            `json:"topic"`
	Settings    map[string]string `json:"settings"`
	Count       int               `json:"count"`
	Offset      *int64            `json:"offset"`
	TimestampMs *int64            `json:"timestamp_ms"`
	Key         []byte            `json:"key"`
	Value       []byte            `json:"value"`
	Headers     [][2]any          `json:"headers"`
	End         bool              `json:"end"`
	Group       string            `json:"group"`
	Partition   int32             `json:"partition"`
	Partitions  int32             `json:"partitions"`
	Replicas    any               `json:"replicas"`
	Configs     map[string]string `json:"configs"`
	Set         map[string]string `json:"set"`
	Delete      map[string]string `json:"delete"`
	Type        string            `json:"type"`
	Name        string            `json:"name"`
	At          string            `json:"at"`
	Brokers     []int32           `json:"brokers"`
}

type record struct {
	Offset      int64    `json:"offset"`
	TimestampMs int64    `json:"timestamp_ms"`
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     [][2]any `json:"headers"`
}

type produced struct {
	Acknowledged []bool  `json:"acknowledged"`
	Error        *string `json:"error"`
}

// kafkaClient is one of the two libraries.
type kafkaClient interface {
	produce(command line, records func() (line, bool)) (produced, error)
	consume(command line) ([]record, error)
	offsetForTime(command line) (*int64, error)
	offsetRange(command line) ([]int64, error)
	partitions(command line) ([]int32, error)
	beginTransactions() error
	readGroup(command line, stop <-chan struct{}) error
	administer(command line) (any, error)
}

var errUnknown = errors.New("there is no such command")

var (
	input  = bufio.NewReaderSize(os.Stdin, 1<<20)
	output = sync.Mutex{}
)

func next() (line, bool) {
	text, err := input.ReadBytes('\n')
	var found line
	if err != nil {
		return found, false
	}
	if err := json.Unmarshal(text, &found); err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	return found, true
}

func say(name string, value any) {
	text, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func main() {
	servers := strings.Split(os.Args[2], ",")
	var client kafkaClient = franzGo{servers}
	if os.Args[1] == "sarama" {
		client = saramaClient{servers}
	}
	for command, found := next(); found; command, found = next() {
		result, err := perform(client, command)
		if err != nil {
			say("error", err.Error())
		} else {
			say("result", result)
		}
	}
}

func perform(client kafkaClient, command line) (any, error) {
	switch command.Do {
	case "produce":
		return client.produce(command, func() (line, bool) {
			following, found := next()
			return following, found && !following.End
		})
	case "consume":
		return client.consume(command)
	case "offset_for_time":
		return client.offsetForTime(command)
	case "offset_range":
		return client.offsetRange(command)
	case "partitions":
		return client.partitions(command)
	case "begin_transactions":
		return true, client.beginTransactions()
	case "read_group":
		stop := make(chan struct{})
		go func() {
			next()
			close(stop)
		}()
		return true, client.readGroup(command, stop)
	}
	return client.administer(command)
}

// outcome keeps which records were acknowledged, in the order of sending, and the first error.
type outcome struct {
	lock     sync.Mutex
	produced produced
}

func (o *outcome) add() int {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.produced.Acknowledged = append(o.produced.Acknowledged, false)
	return len(o.produced.Acknowledged) - 1
}

func (o *outcome) set(number int, err error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.produced.Acknowledged[number] = err == nil
	if err != nil && o.produced.Error == nil {
		text := err.Error()
		o.produced.Error = &text
	}
}

func milliseconds(at *int64) time.Time {
	if at == nil {
		return time.Time{}
	}
	return time.UnixMilli(*at)
}
