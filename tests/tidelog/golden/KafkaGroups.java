/*
 * What Kafka's own Java code says about consumer groups, as JSON on standard output: see README.md beside this file.
 */

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.generated.*;

public class KafkaGroups {
    static final Random RANDOM = new Random(20241106);
    static final Node NODE = new Node(0, "h", 1);

    record Member(String id, String instance, List<String> topics, List<TopicPartition> owned, int generation) {}

    // --- assignors -----------------------------------------------------------------------------------

    static Map<String, List<TopicPartition>> assign(
            ConsumerPartitionAssignor assignor, List<Member> members, Map<String, Integer> topics) {
        List<PartitionInfo> infos = new ArrayList<>();
        topics.forEach((topic, count) -> {
            for (int each = 0; each < count; each++)
                infos.add(new PartitionInfo(topic, each, NODE, new Node[] {NODE}, new Node[] {NODE}));
        });
        Cluster cluster = new Cluster("c", List.of(NODE), infos, Set.of(), Set.of());
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (Member member : members) {
            ByteBuffer userData = null;
            if (assignor instanceof StickyAssignor) userData = memory(new StickyAssignor(), member);
            Subscription subscription = new Subscription(
                member.topics, userData, member.owned, member.generation, Optional.empty());
            subscription.setGroupInstanceId(Optional.ofNullable(member.instance));
            subscriptions.put(member.id, subscription);
        }
        Map<String, List<TopicPartition>> given = new TreeMap<>();
        assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment()
            .forEach((who, what) -> given.put(who, what.partitions()));
        return given;
    }

    static ByteBuffer memory(ConsumerPartitionAssignor assignor, Member member) {
        if (member.generation < 0) return null;
        assignor.onAssignment(new Assignment(member.owned), new ConsumerGroupMetadata("g", member.generation, member.id, Optional.empty()));
        return assignor.subscriptionUserData(new HashSet<>(member.topics));
    }

    static List<Object> cases(int count) {
        List<Object> cases = new ArrayList<>();
        for (int nth = 0; nth < count; nth++) {
            Map<String, Integer> topics = new TreeMap<>();
            for (String topic : List.of("t", "u", "v", "w").subList(0, 1 + RANDOM.nextInt(4)))
                topics.put(topic, 1 + RANDOM.nextInt(9));
            boolean alike = RANDOM.nextInt(3) == 0;
            int size = 1 + RANDOM.nextInt(6);
            List<Member> members = new ArrayList<>();
            for (int each = 0; each < size; each++) members.add(newcomer(each, topics, alike));
            // A generation or two of a group's life, so that there is something to stick to.
            int generations = RANDOM.nextInt(3);
            for (int generation = 0; generation < generations; generation++) {
                Map<String, List<TopicPartition>> had = assign(new StickyAssignor(), members, topics);
                List<Member> next = new ArrayList<>();
                for (Member member : members)
                    if (RANDOM.nextInt(4) != 0)
                        next.add(new Member(member.id, member.instance, alike || RANDOM.nextInt(4) != 0
                            ? member.topics : wanted(topics), had.get(member.id), generation + 1));
                for (int come = RANDOM.nextInt(3); come > 0 || next.isEmpty(); come--)
                    next.add(newcomer(10 * (generation + 1) + come, topics, alike));
                topics.replaceAll((topic, number) -> RANDOM.nextInt(6) == 0 ? number + 2 : number);
                members = next;
            }
            cases.add(played(members, topics));
        }
        return cases;
    }

    static Member newcomer(int number, Map<String, Integer> topics, boolean alike) {
        List<String> wanted = alike ? List.copyOf(topics.keySet()) : wanted(topics);
        String instance = RANDOM.nextInt(4) == 0 ? "i" + (99 - number) : null;
        return new Member("m" + number, instance, wanted, List.of(), -1);
    }

    static List<String> wanted(Map<String, Integer> topics) {
        List<String> wanted = new ArrayList<>();
        for (String topic : topics.keySet()) if (RANDOM.nextBoolean()) wanted.add(topic);
        if (RANDOM.nextInt(10) == 0) wanted.add("gone");
        return wanted.isEmpty() ? List.of("t") : wanted;
    }

    static Object played(List<Member> members, Map<String, Integer> topics) {
        Map<String, Object> played = new LinkedHashMap<>();
        played.put("topics", new TreeMap<>(topics));
        played.put("members", members.stream().map(member -> Arrays.asList(
            member.id, member.instance, member.topics, shown(member.owned), member.generation)).toList());
        for (ConsumerPartitionAssignor assignor : List.of(
                new RangeAssignor(), new RoundRobinAssignor(), new StickyAssignor(), new CooperativeStickyAssignor())) {
            Map<String, String> given = new TreeMap<>();
            assign(assignor, members, topics).forEach((who, what) -> given.put(who, shown(what)));
            played.put(assignor.name(), given);
        }
        played.put("cooperative_rounds", rounds(members, topics));
        return played;
    }

    /** After how many generations everything that is wanted is given, if nobody comes or goes; 99: not soon. */
    static int rounds(List<Member> members, Map<String, Integer> topics) {
        long wanted = topics.entrySet().stream()
            .filter(topic -> members.stream().anyMatch(member -> member.topics.contains(topic.getKey())))
            .mapToLong(Map.Entry::getValue).sum();
        List<Member> now = members;
        for (int round = 1; round < 10; round++) {
            Map<String, List<TopicPartition>> given = assign(new CooperativeStickyAssignor(), now, topics);
            if (given.values().stream().mapToLong(List::size).sum() == wanted) return round;
            int generation = 10 + round;
            now = now.stream().map(member -> new Member(
                member.id, member.instance, member.topics, given.get(member.id), generation)).toList();
        }
        return 99;
    }

    static String shown(List<TopicPartition> partitions) {
        return partitions.stream().map(tp -> tp.topic() + tp.partition()).collect(Collectors.joining(" "));
    }

    // --- bytes ---------------------------------------------------------------------------------------

    static String hex(ByteBuffer buffer) {
        return HexFormat.of().formatHex(Utils.toArray(buffer));
    }

    static Map<String, String> versions(int first, int last, java.util.function.IntFunction<ByteBuffer> write) {
        Map<String, String> written = new LinkedHashMap<>();
        for (int version = first; version <= last; version++) written.put("" + version, hex(write.apply(version)));
        return written;
    }

    static Map<String, Object> bytes() {
        Map<String, Object> bytes = new LinkedHashMap<>();
        List<TopicPartition> owned = List.of(
            new TopicPartition("clicks", 7), new TopicPartition("orders", 0), new TopicPartition("orders", 2));
        Subscription subscription = new Subscription(
            List.of("clicks", "orders"), ByteBuffer.wrap(new byte[] {1, 2, 3}), owned, 42, Optional.of("rack-1"));
        Subscription bare = new Subscription(List.of("orders"));
        Assignment assignment = new Assignment(owned, ByteBuffer.wrap(new byte[] {9}));
        bytes.put("subscription", versions(0, 3, v -> ConsumerProtocol.serializeSubscription(subscription, (short) v)));
        bytes.put("subscription_bare", versions(0, 3, v -> ConsumerProtocol.serializeSubscription(bare, (short) v)));
        bytes.put("assignment", versions(0, 3, v -> ConsumerProtocol.serializeAssignment(assignment, (short) v)));
        bytes.put("assignment_bare",
            versions(0, 3, v -> ConsumerProtocol.serializeAssignment(new Assignment(List.of()), (short) v)));
        Member member = new Member("m", null, List.of("orders"), owned, 42);
        bytes.put("sticky_user_data", hex(memory(new StickyAssignor(), member)));
        bytes.put("cooperative_user_data", hex(memory(new CooperativeStickyAssignor(), member)));
        bytes.put("commit_key", versions(0, 1, v -> MessageUtil.toVersionPrefixedByteBuffer((short) v,
            new OffsetCommitKey().setGroup("gruppe-ä").setTopic("orders").setPartition(7))));
        bytes.put("commit", versions(0, 4, v -> MessageUtil.toVersionPrefixedByteBuffer((short) v,
            new OffsetCommitValue().setOffset(123456789012L).setLeaderEpoch(v < 3 ? -1 : 5).setMetadata("nöte")
                .setCommitTimestamp(1700000000123L).setExpireTimestamp(v == 1 ? 1700000099999L : -1L))));
        bytes.put("group_key", versions(2, 2, v -> MessageUtil.toVersionPrefixedByteBuffer((short) v,
            new GroupMetadataKey().setGroup("gruppe-ä"))));
        bytes.put("group", versions(0, 4, v -> MessageUtil.toVersionPrefixedByteBuffer((short) v,
            new GroupMetadataValue().setProtocolType("consumer").setGeneration(3).setProtocol("range")
                .setLeader("m-1").setCurrentStateTimestamp(v < 2 ? -1L : 1700000000123L).setMembers(List.of(
                    new GroupMetadataValue.MemberMetadata().setMemberId("m-1")
                        .setGroupInstanceId(v < 3 ? null : "i-1").setClientId("client").setClientHost("/127.0.0.1")
                        .setRebalanceTimeout(v < 1 ? -1 : 60000).setSessionTimeout(10000)
                        .setSubscription(new byte[] {1, 2}).setAssignment(new byte[] {3}),
                    new GroupMetadataValue.MemberMetadata().setMemberId("m-2").setClientId("client")
                        .setClientHost("/::1").setRebalanceTimeout(v < 1 ? -1 : 50000).setSessionTimeout(45000)
                        .setSubscription(new byte[0]).setAssignment(new byte[0]))))));
        bytes.put("empty_group", versions(0, 4, v -> MessageUtil.toVersionPrefixedByteBuffer((short) v,
            new GroupMetadataValue().setProtocolType("consumer").setGeneration(4).setProtocol(null)
                .setLeader(null).setCurrentStateTimestamp(v < 2 ? -1L : 1700000000123L).setMembers(List.of()))));
        return bytes;
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        List<String> cases = new ArrayList<>();
        for (Object each : cases(200)) cases.add(json.writeValueAsString(each));
        System.out.println("{\"bytes\": " + json.writerWithDefaultPrettyPrinter().writeValueAsString(bytes()));
        System.out.println(",\"assignors\": [\n" + String.join(",\n", cases) + "\n]}");
    }
}
