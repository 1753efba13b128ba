package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.serve.http.KnownFields;
import java.io.IOException;
import java.net.http.HttpRequest.BodyPublishers;
import java.util.HashSet;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The description says what the server does. */
@Timeout(100)
class OpenApiTest {
  private static JsonObject object(JsonObject in, String... path) {
    JsonObject at = in;
    for (String name : path) {
      at = at.getAsJsonObject(name);
    }
    return at;
  }

  @Test
  void namesEveryPathAndNoOther() throws IOException {
    try (Served served = Served.start(Served.options())) {
      JsonObject paths = served.get("/openapi.json").has(200).json().getAsJsonObject("paths");
      assertTrue(paths.size() >= 20);
      for (Map.Entry<String, JsonElement> path : paths.entrySet()) {
        String at = path.getKey().replace("{model}", Served.MODEL).replace("{id}", "0123");
        String method = path.getValue().getAsJsonObject().keySet().iterator().next();
        String other = method.equals("get") ? "PUT" : "GET";
        Served.Answer answer = served.ask(served.to(at).method(other, BodyPublishers.noBody()));
        answer.refused(405); // a path that is not there is 404
        assertEquals(
            method.toUpperCase(Locale.ROOT),
            answer.response().headers().firstValue("allow").orElse(""),
            at);
      }
      for (String path : Api.routes()) {
        assertTrue(paths.has(path), path);
      }
    }
  }

  @Test
  void listsTheFieldsThatAreHonoured() throws IOException {
    try (Served served = Served.start(Served.options())) {
      JsonObject schemas = object(served.get("/openapi.json").json(), "components", "schemas");
      Map<String, KnownFields> known =
          Map.of(
              "CompletionRequest", KnownFields.COMPLETIONS,
              "ChatRequest", KnownFields.CHAT,
              "Message", KnownFields.MESSAGE,
              "RunRequest", KnownFields.RUNS,
              "TokenizeRequest", KnownFields.TOKENIZE,
              "DetokenizeRequest", KnownFields.DETOKENIZE);
      known.forEach(
          (name, fields) -> {
            Set<String> listed = new HashSet<>(object(schemas, name, "properties").keySet());
            assertEquals(fields.honoured(), listed, name);
          });
    }
  }

  @Test
  void everyReferenceIsThere() throws IOException {
    try (Served served = Served.start(Served.options())) {
      JsonObject all = served.get("/openapi.json").json();
      Matcher reference =
          Pattern.compile("\"#/components/([a-z]+)/([A-Za-z]+)\"").matcher(all.toString());
      int found = 0;
      while (reference.find()) {
        found++;
        assertTrue(object(all, "components", reference.group(1)).has(reference.group(2)));
      }
      assertTrue(found > 20);
    }
  }
}
