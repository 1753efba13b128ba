package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import dev.loupe.sampling.Sampling;
import java.io.IOException;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

/** A server with a run that it keeps, and the same run of the library. */
abstract class WorkbenchFixture {
  static final String TEXT = "ROMEO:\nTo be or not to be, to be or not";
  static final String ABLATED = "'changes': [{'layer': 4, 'head': 0, 'factor': 0}]";

  static Served served;
  static Generation lone; // of TEXT and 30 more, seed 7
  static String id;

  @BeforeAll
  static void start() throws IOException {
    served = Served.start(Served.options());
    lone =
        served
            .loupe()
            .run(
                GenerateRequest.text(TEXT)
                    .tokens(30)
                    .sampling(Sampling.seeded(7))
                    .logprobs(5)
                    .attention(AttentionSelection.all()))
            .getFirst();
    id =
        name(
            events("{'text': '%s', 'tokens': 30, 'seed': 7}".formatted(TEXT.replace("\n", "\\n"))));
  }

  @AfterAll
  static void stop() {
    served.close();
  }

  static HttpResponse<String> post(String body) {
    return served.send(
        served.to("/api/runs").POST(BodyPublishers.ofString(body.replace('\'', '"'))));
  }

  static List<JsonObject> events(String body) {
    HttpResponse<String> response = post(body);
    assertEquals(200, response.statusCode(), response.body());
    List<JsonObject> events = new ArrayList<>();
    for (String event : response.body().strip().split("\n\n", -1)) {
      assertTrue(event.startsWith("data: {"), event);
      events.add(JsonParser.parseString(event.substring(6)).getAsJsonObject());
    }
    return events;
  }

  static String name(List<JsonObject> events) {
    JsonObject done = events.getLast();
    assertEquals("done", done.get("event").getAsString());
    return done.get("id").getAsString();
  }

  static String kind(JsonObject event) {
    return event.get("event").getAsString();
  }

  static String ids(Generation run) {
    return run.tokens().stream().map(Token::id).toList().toString();
  }

  /** The text of the run read another way. */
  static String again(String how) {
    return name(
        events(
            "{'ids': %s, 'prompt_length': %d%s}".formatted(ids(lone), lone.promptLength(), how)));
  }

  static byte[] bytes(String path) {
    try {
      HttpResponse<byte[]> response =
          served.client().send(served.to("/api/runs/" + path).build(), BodyHandlers.ofByteArray());
      assertEquals(200, response.statusCode(), new String(response.body(), UTF_8));
      assertEquals(
          "private, max-age=31536000, immutable",
          response.headers().firstValue("cache-control").orElse(""));
      return response.body();
    } catch (IOException e) {
      throw new AssertionError(e);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  static float[] floats(String path) {
    byte[] bytes = bytes(path);
    float[] floats = new float[bytes.length / 4];
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(floats);
    return floats;
  }

  static JsonObject json(String path) {
    return served.get("/api/runs/" + path).has(200).json();
  }
}
