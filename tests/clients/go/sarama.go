package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type saramaClient struct{ servers []string }

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

var saramaAcks = map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_9_0_0
	config.Metadata.AllowAutoTopicCreation = false
	return config
}

func (s saramaClient) produce(command line, records func() (line, bool)) (produced, error) {
	config := saramaConfig()
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max, config.Producer.Retry.Backoff = 100, 100*time.Millisecond
	if codec, set := command.Settings["compression.type"]; set {
		config.Producer.Compression = saramaCodecs[codec]
	}
	if acks, set := command.Settings["acks"]; set {
		config.Producer.RequiredAcks = saramaAcks[acks]
	}
	if command.Settings["enable.idempotence"] == "true" {
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewAsyncProducer(s.servers, config)
	if err != nil {
		return produced{}, err
	}
	var sent outcome
	var results, pending sync.WaitGroup
	results.Add(2)
	go func() {
		defer results.Done()
		for each := range producer.Successes() {
			sent.set(each.Metadata.(int), nil)
			pending.Done()
		}
	}()
	go func() {
		defer results.Done()
		for each := range producer.Errors() {
			sent.set(each.Msg.Metadata.(int), each.Err)
			pending.Done()
		}
	}()
	for each, more := records(); more; each, more = records() {
		message := &sarama.ProducerMessage{Topic: command.Topic, Partition: 0, Timestamp: milliseconds(each.TimestampMs), Metadata: sent.add()}
		// A nil encoder is a null key or value.
		if each.Key != nil {
			message.Key = sarama.ByteEncoder(each.Key)
		}
		if each.Value != nil {
			message.Value = sarama.ByteEncoder(each.Value)
		}
		for _, header := range each.Headers {
			value, _ := base64.StdEncoding.DecodeString(header[1].(string))
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header[0].(string)), Value: value})
		}
		pending.Add(1)
		producer.Input() <- message
	}
	// A producer that is being closed refuses to repeat a request whose connection was lost.
	pending.Wait()
	producer.AsyncClose()
	results.Wait()
	return sent.produced, nil
}

func (s saramaClient) consume(command line) ([]record, error) {
	client, err := sarama.NewClient(s.servers, saramaConfig())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	start := sarama.OffsetOldest
	if command.TimestampMs != nil {
		if start, err = client.GetOffset(command.Topic, 0, *command.TimestampMs); err != nil {
			return nil, err
		}
	} else if command.Offset != nil {
		start = *command.Offset
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(command.Topic, 0, start)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	found := []record{}
	deadline := time.After(timeout)
	for len(found) < command.Count {
		select {
		case each := <-partition.Messages():
			shown := record{each.Offset, each.Timestamp.UnixMilli(), each.Key, each.Value, [][2]any{}}
			for _, header := range each.Headers {
				shown.Headers = append(shown.Headers, [2]any{string(header.Key), header.Value})
			}
			found = append(found, shown)
		case <-deadline:
			return found, nil
		}
	}
	return found, nil
}

func (s saramaClient) offset(topic string, partition int32, time int64) (int64, error) {
	client, err := sarama.NewClient(s.servers, saramaConfig())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return client.GetOffset(topic, partition, time)
}

func (s saramaClient) offsetForTime(command line) (*int64, error) {
	found, err := s.offset(command.Topic, 0, *command.TimestampMs)
	if err != nil || found < 0 {
		return nil, err
	}
	return &found, nil
}

func (s saramaClient) offsetRange(command line) ([]int64, error) {
	start, err := s.offset(command.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	end, err := s.offset(command.Topic, 0, sarama.OffsetNewest)
	return []int64{start, end}, err
}

func (s saramaClient) partitions(command line) ([]int32, error) {
	client, err := sarama.NewClient(s.servers, saramaConfig())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Partitions(command.Topic)
}

func (s saramaClient) beginTransactions() error {
	config := saramaConfig()
	config.Producer.Idempotent, config.Producer.RequiredAcks, config.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
	config.Producer.Transaction.ID = "payments"
	config.Producer.Transaction.Retry.Max = 3
	config.Producer.Return.Successes = true
	producer, err := sarama.NewAsyncProducer(s.servers, config)
	if err != nil {
		return err
	}
	return producer.Close()
}

// groupHandler reports what its member of the group owns and reads.
type groupHandler struct{ topic string }

func (h groupHandler) Setup(session sarama.ConsumerGroupSession) error {
	now := append([]int32{}, session.Claims()[h.topic]...)
	sort.Slice(now, func(i, j int) bool { return now[i] < now[j] })
	say("owned", now)
	return nil
}

func (h groupHandler) Cleanup(sarama.ConsumerGroupSession) error {
	say("owned", []int32{})
	return nil
}

func (h groupHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case each, open := <-claim.Messages():
			if !open {
				return nil
			}
			say("seen", [][2]int64{{int64(each.Partition), each.Offset}})
			session.MarkMessage(each, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (s saramaClient) readGroup(command line, stop <-chan struct{}) error {
	config := saramaConfig()
	session, _ := strconv.Atoi(command.Settings["session.timeout.ms"])
	config.Consumer.Group.Session.Timeout = time.Duration(session) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = time.Second
	config.Consumer.Group.InstanceId = command.Settings["group.instance.id"]
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	group, err := sarama.NewConsumerGroup(s.servers, command.Settings["group.id"], config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-stop
		cancel()
	}()
	for ctx.Err() == nil {
		// A session ends with each rebalance, and when its coordinator is lost.
		if err := group.Consume(ctx, []string{command.Topic}, groupHandler{command.Topic}); errors.Is(err, sarama.ErrClosedConsumerGroup) {
			return err
		} else if err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return group.Close()
}

func (s saramaClient) administer(command line) (any, error) {
	config := saramaConfig()
	config.Admin.Timeout = 30 * time.Second
	admin, err := sarama.NewClusterAdmin(s.servers, config)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	switch command.Do {
	case "create_topic":
		replicas, _ := command.Replicas.(float64)
		configs := map[string]*string{}
		for name, value := range command.Configs {
			configs[name] = &value
		}
		detail := &sarama.TopicDetail{NumPartitions: command.Partitions, ReplicationFactor: int16(replicas), ConfigEntries: configs}
		return nil, admin.CreateTopic(command.Topic, detail, false)
	case "create_partitions":
		return nil, admin.CreatePartitions(command.Topic, command.Partitions, nil, false)
	case "topics":
		listed, err := admin.ListTopics()
		names := []string{}
		for name := range listed {
			names = append(names, name)
		}
		return names, err
	case "describe_topic":
		described, err := admin.DescribeTopics([]string{command.Topic})
		if err != nil {
			return nil, err
		}
		if described[0].Err != sarama.ErrNoError {
			return nil, described[0].Err
		}
		partitions := []any{}
		for _, each := range described[0].Partitions {
			partitions = append(partitions, map[string]any{"partition": each.ID, "leader": each.Leader, "replicas": each.Replicas, "isr": each.Isr})
		}
		sort.Slice(partitions, func(i, j int) bool {
			return partitions[i].(map[string]any)["partition"].(int32) < partitions[j].(map[string]any)["partition"].(int32)
		})
		return map[string]any{"id": described[0].Uuid.String(), "internal": described[0].IsInternal, "partitions": partitions}, nil
	case "delete_topic":
		return nil, admin.DeleteTopic(command.Topic)
	case "cluster":
		brokers, controller, err := admin.DescribeCluster()
		nodes := []string{}
		for _, each := range brokers {
			nodes = append(nodes, each.Addr())
		}
		sort.Strings(nodes)
		return map[string]any{"id": nil, "controller": controller, "nodes": nodes}, err
	case "configs":
		kind := sarama.TopicResource
		if command.Type == "BROKER" {
			kind = sarama.BrokerResource
		}
		entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: kind, Name: command.Name})
		found := map[string]any{}
		for _, each := range entries {
			synonyms := []string{}
			for _, synonym := range each.Synonyms {
				synonyms = append(synonyms, synonym.ConfigName+"="+synonym.ConfigValue)
			}
			found[each.Name] = map[string]any{"value": each.Value, "source": each.Source.String(), "synonyms": synonyms}
		}
		return found, err
	case "alter_configs":
		changes := map[string]sarama.IncrementalAlterConfigsEntry{}
		for name, value := range command.Set {
			changes[name] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}
		}
		for name := range command.Delete {
			changes[name] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationDelete}
		}
		return nil, admin.IncrementalAlterConfig(sarama.TopicResource, command.Name, changes, false)
	case "list_offset":
		at := map[string]int64{"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest, "max_timestamp": -3}
		time, named := at[command.At]
		if !named {
			time, _ = strconv.ParseInt(command.At, 10, 64)
		}
		return s.offset(command.Topic, command.Partition, time)
	case "delete_records":
		err := admin.DeleteRecords(command.Topic, map[int32]int64{command.Partition: *command.Offset})
		return *command.Offset, err
	case "groups":
		// The client lists groups with their protocol type only.
		listed, err := admin.ListConsumerGroups()
		return listed, err
	case "describe_group":
		return s.describeGroup(admin, command)
	case "group_offsets":
		fetched, err := admin.ListConsumerGroupOffsets(command.Group, nil)
		if err != nil {
			return nil, err
		}
		found := map[string]int64{}
		for topic, partitions := range fetched.Blocks {
			for partition, block := range partitions {
				found[fmt.Sprintf("%s-%d", topic, partition)] = block.Offset
			}
		}
		return found, nil
	case "delete_group_offset":
		return nil, admin.DeleteConsumerGroupOffset(command.Group, command.Topic, command.Partition)
	case "delete_group":
		return nil, admin.DeleteConsumerGroup(command.Group)
	case "remove_member":
		left, err := admin.RemoveMemberFromConsumerGroup(command.Group, []string{command.Name})
		if err != nil {
			return nil, err
		}
		if left.Err != sarama.ErrNoError {
			return nil, left.Err
		}
		for _, each := range left.Members {
			if each.Err != sarama.ErrNoError {
				return nil, each.Err
			}
		}
		return nil, nil
	case "log_dirs":
		described, err := admin.DescribeLogDirs(command.Brokers)
		found := map[string]map[string]int64{}
		for broker, directories := range described {
			sizes := map[string]int64{}
			for _, directory := range directories {
				for _, topic := range directory.Topics {
					for _, each := range topic.Partitions {
						sizes[fmt.Sprintf("%s-%d", topic.Topic, each.PartitionID)] = each.Size
					}
				}
			}
			found[strconv.Itoa(int(broker))] = sizes
		}
		return found, err
	case "elect":
		kind := sarama.PreferredElection
		if command.Type == "UNCLEAN" {
			kind = sarama.UncleanElection
		}
		elected, err := admin.ElectLeaders(kind, map[string][]int32{command.Topic: {command.Partition}})
		if err != nil {
			return nil, err
		}
		if found := elected[command.Topic][command.Partition]; found != nil && found.ErrorCode != sarama.ErrNoError {
			return found.ErrorCode.Error(), nil
		}
		return nil, nil
	case "reassign":
		return nil, admin.AlterPartitionReassignments(command.Topic, [][]int32{ids(command.Replicas)})
	case "reassignments":
		listed, err := admin.ListPartitionReassignments(command.Topic, []int32{command.Partition})
		found := map[string]any{}
		for topic, partitions := range listed {
			for partition, each := range partitions {
				found[fmt.Sprintf("%s-%d", topic, partition)] = map[string]any{
					"replicas": each.Replicas, "adding": each.AddingReplicas, "removing": each.RemovingReplicas,
				}
			}
		}
		return found, err
	}
	return nil, errUnknown
}

func ids(replicas any) []int32 {
	found := []int32{}
	for _, each := range replicas.([]any) {
		found = append(found, int32(each.(float64)))
	}
	return found
}

func (s saramaClient) describeGroup(admin sarama.ClusterAdmin, command line) (any, error) {
	described, err := admin.DescribeConsumerGroups([]string{command.Group})
	if err != nil {
		return nil, err
	}
	found, members := described[0], []any{}
	for _, each := range found.Members {
		partitions := []int32{}
		if assigned, err := each.GetMemberAssignment(); err == nil && assigned != nil {
			for _, numbers := range assigned.Topics {
				partitions = append(partitions, numbers...)
			}
		}
		members = append(members, map[string]any{"client": each.ClientId, "instance": each.GroupInstanceId, "partitions": partitions})
	}
	client, err := sarama.NewClient(s.servers, saramaConfig())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	coordinator, err := client.Coordinator(command.Group)
	if err != nil {
		return nil, err
	}
	if found.Err != sarama.ErrNoError {
		return nil, found.Err
	}
	return map[string]any{
		"state": found.State, "assignor": found.Protocol, "coordinator": coordinator.ID(), "members": members,
	}, nil
}
