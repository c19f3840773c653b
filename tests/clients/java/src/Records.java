import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writes and reads records of partition 0 of a topic. */
final class Records {
    private static final long TIMEOUT_MS = 60_000;

    private Records() {}

    /** Send the records that follow the command, until a line with `end`; return for each whether it was acknowledged. */
    static Object produce(String servers, JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        List<Future<RecordMetadata>> pending = new ArrayList<>();
        List<Boolean> acknowledged = new ArrayList<>();
        String error = null;
        try (KafkaProducer<byte[], byte[]> producer = producer(Client.settings(servers, command))) {
            for (JsonNode line = Client.next(); !line.has("end"); line = Client.next()) {
                pending.add(producer.send(record(topic, line)));
            }
            producer.flush();
            for (Future<RecordMetadata> each : pending) {
                try {
                    each.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
                    acknowledged.add(true);
                } catch (ExecutionException failed) {
                    acknowledged.add(false);
                    error = error == null ? failed.getCause().toString() : error;
                }
            }
        }
        return Client.named("acknowledged", acknowledged, "error", error);
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, JsonNode line) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode each : line.get("headers")) {
            headers.add(new RecordHeader(each.get(0).asText(), Client.bytes(each.get(1))));
        }
        Long timestamp = line.get("timestamp_ms").isNull() ? null : line.get("timestamp_ms").asLong();
        byte[] key = Client.bytes(line.get("key"));
        return new ProducerRecord<>(topic, 0, timestamp, key, Client.bytes(line.get("value")), headers);
    }

    static Object consume(String servers, JsonNode command) throws IOException {
        TopicPartition tp = partition(command);
        int count = command.get("count").asInt();
        List<Object> found = new ArrayList<>();
        Properties settings = Client.settings(servers, command);
        settings.put("max.poll.records", String.valueOf(count));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.assign(List.of(tp));
            if (!command.get("timestamp_ms").isNull()) {
                long time = command.get("timestamp_ms").asLong();
                consumer.seek(tp, consumer.offsetsForTimes(Map.of(tp, time)).get(tp).offset());
            } else if (!command.get("offset").isNull()) {
                consumer.seek(tp, command.get("offset").asLong());
            } else {
                consumer.seekToBeginning(List.of(tp));
            }
            long deadline = System.nanoTime() + TIMEOUT_MS * 1_000_000;
            while (found.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofSeconds(1))) {
                    if (found.size() < count) {
                        found.add(shown(each));
                    }
                }
            }
        }
        return found;
    }

    private static Object shown(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header each : record.headers()) {
            headers.add(List.of(each.key(), Client.text(each.value())));
        }
        return Client.named(
                "offset", record.offset(),
                "timestamp_ms", record.timestamp(),
                "key", Client.text(record.key()),
                "value", Client.text(record.value()),
                "headers", headers);
    }

    static Object offsetForTime(String servers, JsonNode command) {
        TopicPartition tp = partition(command);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Client.settings(servers, command))) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(tp, command.get("timestamp_ms").asLong())).get(tp);
            return found == null ? null : found.offset();
        }
    }

    static Object offsetRange(String servers, JsonNode command) {
        TopicPartition tp = partition(command);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Client.settings(servers, command))) {
            return List.of(consumer.beginningOffsets(List.of(tp)).get(tp), consumer.endOffsets(List.of(tp)).get(tp));
        }
    }

    static Object partitions(String servers, JsonNode command) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Client.settings(servers, command))) {
            return consumer.partitionsFor(command.get("topic").asText()).stream().map(PartitionInfo::partition).sorted().toList();
        }
    }

    static Object beginTransactions(String servers) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", "payments");
        settings.put("max.block.ms", "10000");
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            producer.initTransactions();
        }
        return true;
    }

    private static TopicPartition partition(JsonNode command) {
        return new TopicPartition(command.get("topic").asText(), 0);
    }

    static KafkaProducer<byte[], byte[]> producer(Properties settings) {
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Properties settings) {
        settings.putIfAbsent("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
}
