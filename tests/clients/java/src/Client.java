import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/**
 * Drives Kafka's Java clients by lines of JSON: each line of standard input is a command with the field `do`, and each
 * command has one line of output, `{"result": …}` or `{"error": …}`.
 */
public final class Client {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final BufferedReader IN =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private static final PrintStream OUT = System.out;

    private Client() {}

    public static void main(String[] args) throws IOException {
        System.setOut(System.err);
        String servers = args[0];
        for (JsonNode command = next(); command != null; command = next()) {
            try {
                say("result", perform(servers, command));
            } catch (Exception error) {
                Throwable cause = error;
                while ((cause instanceof ExecutionException || cause instanceof CompletionException)
                        && cause.getCause() != null) {
                    cause = cause.getCause();
                }
                say("error", cause.toString());
            }
        }
        // Threads of a client that could not be closed must not keep the process.
        System.exit(0);
    }

    private static Object perform(String servers, JsonNode command) throws Exception {
        String what = command.get("do").asText();
        return switch (what) {
            case "produce" -> Records.produce(servers, command);
            case "consume" -> Records.consume(servers, command);
            case "offset_for_time" -> Records.offsetForTime(servers, command);
            case "offset_range" -> Records.offsetRange(servers, command);
            case "partitions" -> Records.partitions(servers, command);
            case "begin_transactions" -> Records.beginTransactions(servers);
            case "read_group" -> GroupReader.read(servers, command);
            case "count_words" -> WordCount.run(servers, command);
            default -> Administration.perform(servers, what, command);
        };
    }

    /** Return the next line of input, or null at the end. */
    static JsonNode next() throws IOException {
        String line = IN.readLine();
        return line == null ? null : JSON.readTree(line);
    }

    static boolean inputWaits() throws IOException {
        return IN.ready();
    }

    static void say(String name, Object value) throws IOException {
        OUT.println(JSON.writeValueAsString(java.util.Collections.singletonMap(name, value)));
        OUT.flush();
    }

    /** Return the settings of a client: the addresses and the members of the command's object `settings`. */
    static Properties settings(String servers, JsonNode command) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        if (command.has("settings")) {
            command.get("settings").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        }
        return settings;
    }

    static byte[] bytes(JsonNode encoded) {
        return encoded == null || encoded.isNull() ? null : Base64.getDecoder().decode(encoded.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static Map<String, Object> named(Object... namesAndValues) {
        Map<String, Object> found = new java.util.LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            found.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return found;
    }
}
