import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * Reads a topic as a member of a group until a line of input arrives, and writes lines meanwhile: `owned` (partitions)
 * after each change, `revoked` (partitions that a rebalance took), `seen` (pairs of partition and offset).
 */
final class GroupReader implements ConsumerRebalanceListener {
    private final List<Integer> revoked = new ArrayList<>();

    static Object read(String servers, JsonNode command) throws IOException {
        Properties settings = Client.settings(servers, command);
        settings.putIfAbsent("enable.auto.commit", "true");
        GroupReader listener = new GroupReader();
        List<Integer> owned = List.of();
        try (KafkaConsumer<byte[], byte[]> consumer = Records.consumer(settings)) {
            consumer.subscribe(List.of(command.get("topic").asText()), listener);
            while (!Client.inputWaits()) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(200));
                List<Integer> now = numbers(consumer.assignment());
                if (!listener.revoked.isEmpty()) {
                    Client.say("revoked", listener.revoked);
                    listener.revoked.clear();
                }
                if (!now.equals(owned)) {
                    owned = now;
                    Client.say("owned", owned);
                }
                if (!polled.isEmpty()) {
                    List<Object> seen = new ArrayList<>();
                    for (ConsumerRecord<byte[], byte[]> each : polled) {
                        seen.add(List.of(each.partition(), each.offset()));
                    }
                    Client.say("seen", seen);
                }
            }
            Client.next();
        }
        return true;
    }

    private static List<Integer> numbers(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::partition).sorted().toList();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        revoked.addAll(numbers(partitions));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}
}
