package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franzGo struct{ servers []string }

func (f franzGo) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(f.servers...)}, options...)...)
}

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (f franzGo) produce(command line, records func() (line, bool)) (produced, error) {
	options := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(timeout)}
	if codec, set := command.Settings["compression.type"]; set {
		options = append(options, kgo.ProducerBatchCompression(franzCodecs[codec]))
	}
	acks, idempotent := command.Settings["acks"], command.Settings["enable.idempotence"]
	switch acks {
	case "0":
		options = append(options, kgo.RequiredAcks(kgo.NoAck()))
	case "1":
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()))
	}
	if idempotent == "false" || acks == "0" || acks == "1" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := f.client(options...)
	if err != nil {
		return produced{}, err
	}
	defer client.Close()
	var sent outcome
	for each, more := records(); more; each, more = records() {
		number := sent.add()
		next := &kgo.Record{Topic: command.Topic, Key: each.Key, Value: each.Value, Timestamp: milliseconds(each.TimestampMs)}
		for _, header := range each.Headers {
			value, _ := base64.StdEncoding.DecodeString(header[1].(string))
			next.Headers = append(next.Headers, kgo.RecordHeader{Key: header[0].(string), Value: value})
		}
		client.Produce(context.Background(), next, func(_ *kgo.Record, err error) { sent.set(number, err) })
	}
	err = client.Flush(context.Background())
	return sent.produced, err
}

func (f franzGo) consume(command line) ([]record, error) {
	start := kgo.NewOffset().AtStart()
	if command.TimestampMs != nil {
		start = kgo.NewOffset().AfterMilli(*command.TimestampMs)
	} else if command.Offset != nil {
		start = kgo.NewOffset().At(*command.Offset)
	}
	client, err := f.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{command.Topic: {0: start}}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	found := []record{}
	for len(found) < command.Count && ctx.Err() == nil {
		polled := client.PollRecords(ctx, command.Count-len(found))
		if err := polled.Err0(); err != nil {
			return nil, err
		}
		for _, err := range polled.Errors() {
			return nil, err.Err
		}
		for _, each := range polled.Records() {
			shown := record{each.Offset, each.Timestamp.UnixMilli(), each.Key, each.Value, [][2]any{}}
			for _, header := range each.Headers {
				shown.Headers = append(shown.Headers, [2]any{header.Key, header.Value})
			}
			found = append(found, shown)
		}
	}
	return found, nil
}

// administering calls `do` with an admin client.
func administering[T any](f franzGo, do func(context.Context, *kadm.Client) (T, error)) (T, error) {
	client, err := f.client()
	if err != nil {
		var none T
		return none, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return do(ctx, kadm.NewClient(client))
}

func (f franzGo) listed(command line, ask func(context.Context, *kadm.Client) (kadm.ListedOffsets, error)) (int64, error) {
	return administering(f, func(ctx context.Context, admin *kadm.Client) (int64, error) {
		// A broker that has just started may not know the topic yet. Then the answer lacks the partition.
		for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			listed, err := ask(ctx, admin)
			if err != nil {
				return 0, err
			}
			if found, isListed := listed.Lookup(command.Topic, command.Partition); isListed {
				return found.Offset, found.Err
			}
		}
		return 0, fmt.Errorf("no offset of %s-%d within %v", command.Topic, command.Partition, timeout)
	})
}

func (f franzGo) offsetForTime(command line) (*int64, error) {
	// kadm answers the end of the log for a time after all records, with the timestamp -1.
	return administering(f, func(ctx context.Context, admin *kadm.Client) (*int64, error) {
		listed, err := admin.ListOffsetsAfterMilli(ctx, *command.TimestampMs, command.Topic)
		if err != nil {
			return nil, err
		}
		found, _ := listed.Lookup(command.Topic, 0)
		if found.Err != nil || found.Timestamp < 0 {
			return nil, found.Err
		}
		return &found.Offset, nil
	})
}

func (f franzGo) offsetRange(command line) ([]int64, error) {
	start, err := f.listed(command, func(ctx context.Context, admin *kadm.Client) (kadm.ListedOffsets, error) {
		return admin.ListStartOffsets(ctx, command.Topic)
	})
	if err != nil {
		return nil, err
	}
	end, err := f.listed(command, func(ctx context.Context, admin *kadm.Client) (kadm.ListedOffsets, error) {
		return admin.ListEndOffsets(ctx, command.Topic)
	})
	return []int64{start, end}, err
}

func (f franzGo) partitions(command line) ([]int32, error) {
	return administering(f, func(ctx context.Context, admin *kadm.Client) ([]int32, error) {
		topics, err := admin.ListTopics(ctx, command.Topic)
		if err != nil {
			return nil, err
		}
		return topics[command.Topic].Partitions.Numbers(), topics[command.Topic].Err
	})
}

func (f franzGo) beginTransactions() error {
	client, err := f.client(kgo.TransactionalID("payments"), kgo.DefaultProduceTopic("none"))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// The client asks for its producer id when it is first needed.
	_, _, err = client.ProducerID(ctx)
	return err
}

func (f franzGo) readGroup(command line, stop <-chan struct{}) error {
	var lock sync.Mutex
	owned := map[int32]bool{}
	change := func(name string, partitions []int32, owns bool) {
		lock.Lock()
		defer lock.Unlock()
		for _, each := range partitions {
			if owns {
				owned[each] = true
			} else {
				delete(owned, each)
			}
		}
		now := []int32{}
		for each := range owned {
			now = append(now, each)
		}
		sort.Slice(now, func(i, j int) bool { return now[i] < now[j] })
		if !owns && len(partitions) > 0 {
			say("revoked", partitions)
		}
		say("owned", now)
	}
	session, _ := strconv.Atoi(command.Settings["session.timeout.ms"])
	options := []kgo.Opt{
		kgo.ConsumerGroup(command.Settings["group.id"]),
		kgo.ConsumeTopics(command.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(time.Duration(session) * time.Millisecond),
		kgo.HeartbeatInterval(time.Second),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
			change("owned", assigned[command.Topic], true)
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, revoked map[string][]int32) {
			client.CommitUncommittedOffsets(ctx)
			change("owned", revoked[command.Topic], false)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			change("owned", lost[command.Topic], false)
		}),
	}
	if instance := command.Settings["group.instance.id"]; instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	if command.Settings["partition.assignment.strategy"] == "range" {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	client, err := f.client(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-stop
		cancel()
	}()
	for ctx.Err() == nil {
		seen := [][2]int64{}
		client.PollFetches(ctx).EachRecord(func(each *kgo.Record) {
			seen = append(seen, [2]int64{int64(each.Partition), each.Offset})
		})
		if len(seen) > 0 {
			say("seen", seen)
		}
	}
	return client.CommitUncommittedOffsets(context.Background())
}

func (f franzGo) administer(command line) (any, error) {
	return administering(f, func(ctx context.Context, admin *kadm.Client) (any, error) {
		switch command.Do {
		case "create_topic":
			configs := map[string]*string{}
			for name, value := range command.Configs {
				configs[name] = &value
			}
			replicas, _ := command.Replicas.(float64)
			created, err := admin.CreateTopic(ctx, command.Partitions, int16(replicas), configs, command.Topic)
			if err != nil {
				return nil, err
			}
			return map[string]any{"partitions": created.NumPartitions, "replicas": created.ReplicationFactor, "id": created.ID.String()}, created.Err
		case "create_partitions":
			updated, err := admin.UpdatePartitions(ctx, int(command.Partitions), command.Topic)
			if err == nil {
				err = updated.Error()
			}
			return nil, err
		case "topics":
			topics, err := admin.ListTopicsWithInternal(ctx)
			return topics.Names(), err
		case "describe_topic":
			topics, err := admin.ListTopics(ctx, command.Topic)
			if err != nil {
				return nil, err
			}
			found, partitions := topics[command.Topic], []any{}
			for _, each := range found.Partitions.Sorted() {
				partitions = append(partitions, map[string]any{
					"partition": each.Partition, "leader": each.Leader, "replicas": each.Replicas, "isr": each.ISR,
				})
			}
			return map[string]any{"id": found.ID.String(), "internal": found.IsInternal, "partitions": partitions}, found.Err
		case "delete_topic":
			deleted, err := admin.DeleteTopic(ctx, command.Topic)
			if err == nil {
				err = deleted.Err
			}
			return nil, err
		case "cluster":
			found, err := admin.BrokerMetadata(ctx)
			nodes := []string{}
			for _, each := range found.Brokers {
				nodes = append(nodes, fmt.Sprintf("%s:%d", each.Host, each.Port))
			}
			sort.Strings(nodes)
			return map[string]any{"id": found.Cluster, "controller": found.Controller, "nodes": nodes}, err
		case "configs":
			return franzConfigs(ctx, admin, command)
		case "alter_configs":
			changes := []kadm.AlterConfig{}
			for name, value := range command.Set {
				changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
			}
			for name := range command.Delete {
				changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
			}
			altered, err := admin.AlterTopicConfigs(ctx, changes, command.Name)
			for _, each := range altered {
				if err == nil {
					err = each.Err
				}
			}
			return nil, err
		case "list_offset":
			return f.listed(command, func(ctx context.Context, admin *kadm.Client) (kadm.ListedOffsets, error) {
				switch command.At {
				case "earliest":
					return admin.ListStartOffsets(ctx, command.Topic)
				case "latest":
					return admin.ListEndOffsets(ctx, command.Topic)
				case "max_timestamp":
					return admin.ListMaxTimestampOffsets(ctx, command.Topic)
				}
				at, _ := strconv.ParseInt(command.At, 10, 64)
				return admin.ListOffsetsAfterMilli(ctx, at, command.Topic)
			})
		case "delete_records":
			before := kadm.Offsets{}
			before.AddOffset(command.Topic, command.Partition, *command.Offset, -1)
			deleted, err := admin.DeleteRecords(ctx, before)
			found, _ := deleted.Lookup(command.Topic, command.Partition)
			if err == nil {
				err = found.Err
			}
			return found.LowWatermark, err
		case "groups":
			listed, err := admin.ListGroups(ctx)
			found := map[string]string{}
			for name, each := range listed {
				found[name] = each.State
			}
			return found, err
		case "describe_group":
			return franzGroup(ctx, admin, command)
		case "group_offsets":
			fetched, err := admin.FetchOffsets(ctx, command.Group)
			found := map[string]int64{}
			fetched.Each(func(each kadm.OffsetResponse) {
				found[fmt.Sprintf("%s-%d", each.Topic, each.Partition)] = each.At
			})
			return found, err
		case "alter_group_offset":
			offsets := kadm.Offsets{}
			offsets.AddOffset(command.Topic, command.Partition, *command.Offset, -1)
			return nil, admin.CommitAllOffsets(ctx, command.Group, offsets)
		case "delete_group_offset":
			partitions := kadm.TopicsSet{}
			partitions.Add(command.Topic, command.Partition)
			deleted, err := admin.DeleteOffsets(ctx, command.Group, partitions)
			if err == nil {
				err = deleted.Error()
			}
			return nil, err
		case "delete_group":
			deleted, err := admin.DeleteGroup(ctx, command.Group)
			if err == nil {
				err = deleted.Err
			}
			return nil, err
		case "remove_member":
			left, err := admin.LeaveGroup(ctx, kadm.LeaveGroup(command.Group).InstanceIDs(command.Name))
			if err == nil {
				err = left.Error()
			}
			return nil, err
		case "log_dirs":
			return franzLogDirs(ctx, admin)
		case "elect":
			how := kadm.ElectPreferredReplica
			if command.Type == "UNCLEAN" {
				how = kadm.ElectLiveReplica
			}
			partitions := kadm.TopicsSet{}
			partitions.Add(command.Topic, command.Partition)
			elected, err := admin.ElectLeaders(ctx, how, partitions)
			if err != nil {
				return nil, err
			}
			if err := elected[command.Topic][command.Partition].Err; err != nil {
				return err.Error(), nil
			}
			return nil, nil
		case "reassign":
			var wanted kadm.AlterPartitionAssignmentsReq
			if replicas, given := command.Replicas.([]any); given {
				ids := []int32{}
				for _, each := range replicas {
					ids = append(ids, int32(each.(float64)))
				}
				wanted.Assign(command.Topic, command.Partition, ids)
			} else {
				wanted.CancelAssign(command.Topic, command.Partition)
			}
			altered, err := admin.AlterPartitionAssignments(ctx, wanted)
			if err == nil {
				err = altered.Error()
			}
			return nil, err
		case "reassignments":
			listed, err := admin.ListPartitionReassignments(ctx, nil)
			found := map[string]any{}
			listed.Each(func(each kadm.ListPartitionReassignmentsResponse) {
				found[fmt.Sprintf("%s-%d", each.Topic, each.Partition)] = map[string]any{
					"replicas": each.Replicas, "adding": each.AddingReplicas, "removing": each.RemovingReplicas,
				}
			})
			return found, err
		}
		return nil, errUnknown
	})
}

func franzConfigs(ctx context.Context, admin *kadm.Client, command line) (any, error) {
	var resources kadm.ResourceConfigs
	var err error
	if command.Type == "BROKER" {
		id, _ := strconv.Atoi(command.Name)
		resources, err = admin.DescribeBrokerConfigs(ctx, int32(id))
	} else {
		resources, err = admin.DescribeTopicConfigs(ctx, command.Name)
	}
	found := map[string]any{}
	for _, resource := range resources {
		if err == nil {
			err = resource.Err
		}
		for _, each := range resource.Configs {
			synonyms := []string{}
			for _, synonym := range each.Synonyms {
				synonyms = append(synonyms, synonym.Key+"="+optional(synonym.Value))
			}
			found[each.Key] = map[string]any{"value": each.Value, "source": each.Source.String(), "synonyms": synonyms}
		}
	}
	return found, err
}

func optional(value *string) string {
	if value == nil {
		return "null"
	}
	return *value
}

func franzGroup(ctx context.Context, admin *kadm.Client, command line) (any, error) {
	described, err := admin.DescribeGroups(ctx, command.Group)
	if err != nil {
		return nil, err
	}
	found, members := described[command.Group], []any{}
	for _, each := range found.Members {
		partitions := []int32{}
		if assigned, known := each.Assigned.AsConsumer(); known {
			for _, topic := range assigned.Topics {
				partitions = append(partitions, topic.Partitions...)
			}
		}
		members = append(members, map[string]any{"client": each.ClientID, "instance": each.InstanceID, "partitions": partitions})
	}
	return map[string]any{
		"state": found.State, "assignor": found.Protocol, "coordinator": found.Coordinator.NodeID, "members": members,
	}, found.Err
}

func franzLogDirs(ctx context.Context, admin *kadm.Client) (any, error) {
	described, err := admin.DescribeAllLogDirs(ctx, nil)
	found := map[string]map[string]int64{}
	described.Each(func(each kadm.DescribedLogDir) {
		sizes := map[string]int64{}
		each.Topics.Each(func(partition kadm.DescribedLogDirPartition) {
			sizes[fmt.Sprintf("%s-%d", partition.Topic, partition.Partition)] = partition.Size
		})
		found[strconv.Itoa(int(each.Broker))] = sizes
	})
	return found, err
}
