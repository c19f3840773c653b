import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.PartitionReassignment;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;

/** The commands of the AdminClient. */
final class Administration {
    private final Admin admin;
    private final JsonNode command;

    private Administration(Admin admin, JsonNode command) {
        this.admin = admin;
        this.command = command;
    }

    static Object perform(String servers, String what, JsonNode command) throws Exception {
        try (Admin admin = Admin.create(Client.settings(servers, command))) {
            return new Administration(admin, command).perform(what);
        }
    }

    private Object perform(String what) throws Exception {
        return switch (what) {
            case "create_topic" -> createTopic();
            case "create_partitions" -> admin.createPartitions(
                    Map.of(text("topic"), NewPartitions.increaseTo(number("partitions")))).all().get();
            case "topics" -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            case "describe_topic" -> describeTopic();
            case "delete_topic" -> admin.deleteTopics(List.of(text("topic"))).all().get();
            case "delete_topic_by_id" -> admin.deleteTopics(
                    TopicCollection.ofTopicIds(List.of(Uuid.fromString(text("id"))))).all().get();
            case "cluster" -> describeCluster();
            case "configs" -> configs();
            case "alter_configs" -> alterConfigs();
            case "list_offset" -> listOffset();
            case "delete_records" -> admin.deleteRecords(
                    Map.of(tp(), RecordsToDelete.beforeOffset(number("offset")))).lowWatermarks().get(tp()).get().lowWatermark();
            case "groups" -> groups();
            case "describe_group" -> describeGroup();
            case "group_offsets" -> groupOffsets();
            case "alter_group_offset" -> admin.alterConsumerGroupOffsets(
                    text("group"), Map.of(tp(), new OffsetAndMetadata(number("offset"), "moved"))).all().get();
            case "delete_group_offset" -> admin.deleteConsumerGroupOffsets(text("group"), Set.of(tp())).all().get();
            case "delete_group" -> admin.deleteConsumerGroups(List.of(text("group"))).all().get();
            case "remove_member" -> admin.removeMembersFromConsumerGroup(text("group"),
                    new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove(text("name"))))).all().get();
            case "log_dirs" -> logDirs();
            case "elect" -> elect();
            case "reassign" -> reassign();
            case "reassignments" -> reassignments();
            default -> throw new IllegalArgumentException("there is no command " + what);
        };
    }

    private String text(String name) {
        return command.get(name).asText();
    }

    private int number(String name) {
        return command.get(name).asInt();
    }

    private TopicPartition tp() {
        return new TopicPartition(text("topic"), number("partition"));
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).toList();
    }

    private static List<Integer> numbers(JsonNode array) {
        List<Integer> found = new ArrayList<>();
        array.forEach(each -> found.add(each.asInt()));
        return found;
    }

    private Map<String, String> texts(String name) {
        Map<String, String> found = new TreeMap<>();
        if (command.has(name)) {
            command.get(name).fields().forEachRemaining(each -> found.put(each.getKey(), each.getValue().asText()));
        }
        return found;
    }

    private Object createTopic() throws Exception {
        NewTopic topic;
        if (command.has("assignment")) {
            Map<Integer, List<Integer>> assignment = new TreeMap<>();
            command.get("assignment").forEach(replicas -> assignment.put(assignment.size(), numbers(replicas)));
            topic = new NewTopic(text("topic"), assignment);
        } else {
            Optional<Integer> partitions = command.has("partitions") ? Optional.of(number("partitions")) : Optional.empty();
            Optional<Short> replicas = command.has("replicas") ? Optional.of((short) number("replicas")) : Optional.empty();
            topic = new NewTopic(text("topic"), partitions, replicas);
        }
        boolean isTrial = command.has("validate_only") && command.get("validate_only").asBoolean();
        CreateTopicsResult created = admin.createTopics(
                List.of(topic.configs(texts("configs"))), new CreateTopicsOptions().validateOnly(isTrial));
        return Client.named(
                "partitions", created.numPartitions(text("topic")).get(),
                "replicas", created.replicationFactor(text("topic")).get(),
                "id", isTrial ? null : created.topicId(text("topic")).get().toString());
    }

    private Object describeTopic() throws Exception {
        TopicDescription found = admin.describeTopics(List.of(text("topic"))).allTopicNames().get().get(text("topic"));
        List<Object> partitions = new ArrayList<>();
        for (TopicPartitionInfo each : found.partitions()) {
            partitions.add(Client.named(
                    "partition", each.partition(), "leader", each.leader() == null ? -1 : each.leader().id(),
                    "replicas", ids(each.replicas()), "isr", ids(each.isr())));
        }
        return Client.named("id", found.topicId().toString(), "internal", found.isInternal(), "partitions", partitions);
    }

    private Object describeCluster() throws Exception {
        DescribeClusterResult found = admin.describeCluster();
        List<String> nodes = found.nodes().get().stream().map(each -> each.host() + ":" + each.port()).sorted().toList();
        return Client.named("id", found.clusterId().get(), "controller", found.controller().get().id(), "nodes", nodes);
    }

    private ConfigResource resource() {
        return new ConfigResource(ConfigResource.Type.valueOf(text("type")), text("name"));
    }

    private Object configs() throws Exception {
        ConfigResource resource = resource();
        DescribeConfigsOptions everything = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Map<String, Object> found = new TreeMap<>();
        for (ConfigEntry each : admin.describeConfigs(List.of(resource), everything).all().get().get(resource).entries()) {
            List<String> synonyms = each.synonyms().stream().map(synonym -> synonym.name() + "=" + synonym.value()).toList();
            found.put(each.name(), Client.named(
                    "value", each.value(), "source", each.source().toString(), "type", each.type().toString(),
                    "documentation", each.documentation(), "synonyms", synonyms));
        }
        return found;
    }

    private Object alterConfigs() throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (String kind : List.of("set", "append", "subtract", "delete")) {
            texts(kind).forEach((name, value) -> changes.add(new AlterConfigOp(
                    new ConfigEntry(name, kind.equals("delete") ? null : value),
                    AlterConfigOp.OpType.valueOf(kind.toUpperCase(java.util.Locale.ROOT)))));
        }
        return admin.incrementalAlterConfigs(Map.of(resource(), changes)).all().get();
    }

    private Object listOffset() throws Exception {
        OffsetSpec wanted = switch (text("at")) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(command.get("at").asLong());
        };
        return admin.listOffsets(Map.of(tp(), wanted)).partitionResult(tp()).get().offset();
    }

    private Object groups() throws Exception {
        Map<String, String> found = new TreeMap<>();
        for (ConsumerGroupListing each : admin.listConsumerGroups().valid().get()) {
            found.put(each.groupId(), each.state().map(Object::toString).orElse("none"));
        }
        return found;
    }

    private Object describeGroup() throws Exception {
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(text("group"))).all().get().get(text("group"));
        List<Object> members = new ArrayList<>();
        for (MemberDescription each : found.members()) {
            List<Integer> partitions =
                    each.assignment().topicPartitions().stream().map(TopicPartition::partition).sorted().toList();
            members.add(Client.named(
                    "client", each.clientId(), "instance", each.groupInstanceId().orElse(null), "partitions", partitions));
        }
        return Client.named(
                "state", found.state().toString(), "assignor", found.partitionAssignor(),
                "coordinator", found.coordinator().id(), "members", members);
    }

    private Object groupOffsets() throws Exception {
        Map<String, Long> found = new TreeMap<>();
        for (Map.Entry<TopicPartition, OffsetAndMetadata> each :
                admin.listConsumerGroupOffsets(text("group")).partitionsToOffsetAndMetadata().get().entrySet()) {
            found.put(each.getKey().toString(), each.getValue().offset());
        }
        return found;
    }

    private Object logDirs() throws Exception {
        Map<Integer, Object> found = new TreeMap<>();
        for (Map.Entry<Integer, Map<String, LogDirDescription>> broker :
                admin.describeLogDirs(numbers(command.get("brokers"))).allDescriptions().get().entrySet()) {
            Map<String, Long> sizes = new TreeMap<>();
            for (LogDirDescription directory : broker.getValue().values()) {
                for (Map.Entry<TopicPartition, ReplicaInfo> each : directory.replicaInfos().entrySet()) {
                    sizes.put(each.getKey().toString(), each.getValue().size());
                }
            }
            found.put(broker.getKey(), sizes);
        }
        return found;
    }

    /** Return the error of the election, or null. */
    private Object elect() throws Exception {
        ElectionType type = ElectionType.valueOf(text("type"));
        Optional<Throwable> error = admin.electLeaders(type, Set.of(tp())).partitions().get().get(tp());
        return error.map(Throwable::toString).orElse(null);
    }

    private Object reassign() throws Exception {
        JsonNode replicas = command.get("replicas");
        Optional<NewPartitionReassignment> wanted =
                replicas.isNull() ? Optional.empty() : Optional.of(new NewPartitionReassignment(numbers(replicas)));
        return admin.alterPartitionReassignments(Map.of(tp(), wanted)).all().get();
    }

    private Object reassignments() throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        for (Map.Entry<TopicPartition, PartitionReassignment> each :
                admin.listPartitionReassignments().reassignments().get().entrySet()) {
            PartitionReassignment now = each.getValue();
            found.put(each.getKey().toString(), Client.named(
                    "replicas", now.replicas(), "adding", now.addingReplicas(), "removing", now.removingReplicas()));
        }
        return found;
    }
}
