import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/** Kafka Streams' word count: reads lines of the topic `from`, writes the count of each word to the topic `to`. */
final class WordCount {
    private WordCount() {}

    /** Count until a line of input arrives; write `running` when the state store is ready. */
    static Object run(String servers, JsonNode command) throws IOException, InterruptedException {
        Properties settings = Client.settings(servers, command);
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(command.get("from").asText());
        lines.flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split("\\W+")))
                .groupBy((key, word) -> word)
                .count()
                .toStream()
                .to(command.get("to").asText(), Produced.with(Serdes.String(), Serdes.Long()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            String[] failure = new String[1];
            streams.setUncaughtExceptionHandler(error -> {
                failure[0] = error.toString();
                return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            boolean isRunning = false;
            while (!Client.inputWaits() && failure[0] == null) {
                Thread.sleep(50);
                if (!isRunning && streams.state() == KafkaStreams.State.RUNNING) {
                    isRunning = true;
                    Client.say("running", true);
                }
            }
            if (failure[0] != null) {
                throw new IllegalStateException(failure[0]);
            }
            Client.next();
            streams.close(Duration.ofSeconds(20));
        }
        return true;
    }
}
