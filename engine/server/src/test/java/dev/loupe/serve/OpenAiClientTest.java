package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.chat.ChatTemplate;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * What OpenAI's own clients make of the answers: that for Node, which needs node and a folder
 * LOUPE_OPENAI in which {@code npm install openai} was run; and that for Python, which needs a
 * Python, LOUPE_OPENAI_PYTHON, with {@code openai}.
 */
@Timeout(200)
class OpenAiClientTest {
  private static final String SCRIPT =
      """
      const { default: OpenAI } = await import(process.argv[2]);
      const baseURL = process.argv[3] + "/v1";
      const client = new OpenAI({ baseURL, apiKey: "s3cret", maxRetries: 0 });
      const said = { models: [], errors: [], text: "" };
      for await (const model of client.models.list()) said.models.push(model.id);
      said.retrieved = (await client.models.retrieve("shakespeare")).id;
      const asked = { model: "shakespeare", prompt: "ROMEO:", max_tokens: 20, seed: 1 };
      said.whole = await client.completions.create({ ...asked, n: 2, logprobs: 2, stop: ["\\n\\n"] });
      const streamed = { ...asked, stream: true, stream_options: { include_usage: true } };
      for await (const chunk of await client.completions.create(streamed)) {
        if (chunk.choices.length) said.text += chunk.choices[0].text;
        if (chunk.usage) said.usage = chunk.usage;
      }
      for await (const chunk of await client.completions.create(
          { ...asked, max_tokens: 240, n: 64, stream: true })) break; // goes away
      const talk = { model: "shakespeare", messages: [{ role: "user", content: "Speak" }],
                     max_completion_tokens: 20, seed: 1 };
      said.answer = (await client.chat.completions.create(talk)).choices[0].message.content;
      said.streamed = "";
      for await (const chunk of await client.chat.completions.create({ ...talk, stream: true }))
        said.streamed += chunk.choices[0].delta.content ?? "";
      const other = new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 });
      for (const [who, more] of [[other, {}], [client, { model: "gpt-4" }], [client, { max_tokens: 999 }]]) {
        try {
          await who.completions.create({ ...asked, ...more });
        } catch (e) {
          said.errors.push([e.constructor.name, e.status, e.code, e.param]);
        }
      }
      console.log(JSON.stringify(said));
      """;

  @TempDir Path folder;

  /** A server that asks for a key and has a chat template. */
  private static Served serve(Optional<String> key) throws Exception {
    ServerOptions options = Served.options();
    String template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    return Served.start(
        new ServerOptions(
            options.host(),
            0,
            key,
            options.queue(),
            options.slots(),
            options.timeout(),
            options.model(),
            Optional.of(new ChatTemplate(template, "a test", Map.of()))));
  }

  @Test
  void thatForPythonUnderstandsTheAnswers() throws Exception {
    String python = System.getenv("LOUPE_OPENAI_PYTHON");
    assumeTrue(python != null, "LOUPE_OPENAI_PYTHON names no Python with OpenAI's client");
    Path script = folder.resolve("client.py");
    try (InputStream in = OpenAiClientTest.class.getResourceAsStream("openai-client.py")) {
      Files.write(script, Objects.requireNonNull(in).readAllBytes());
    }
    try (Served served = serve(Optional.empty())) {
      Process process =
          new ProcessBuilder(String.valueOf(python), script.toString(), served.server().address())
              .redirectErrorStream(true)
              .start();
      String out = new String(process.getInputStream().readAllBytes(), UTF_8);
      assertTrue(process.waitFor(100, TimeUnit.SECONDS));
      assertEquals(0, process.exitValue(), out);
      assertTrue(out.contains("refused: prompt context_length_exceeded True"), out);
      assertTrue(out.contains("chat: "), out);
      served.awaitIdle();
    }
  }

  @Test
  void understandsTheAnswers() throws Exception {
    String home = System.getenv("LOUPE_OPENAI");
    assumeTrue(home != null, "LOUPE_OPENAI names no folder with OpenAI's client for Node");
    Path client = Path.of(String.valueOf(home), "node_modules", "openai", "index.mjs");
    Path script = Files.writeString(folder.resolve("client.mjs"), SCRIPT);
    try (Served served = serve(Optional.of("s3cret"))) {
      Process node =
          new ProcessBuilder(
                  "node", script.toString(), client.toString(), served.server().address())
              .redirectErrorStream(true)
              .start();
      String out = new String(node.getInputStream().readAllBytes(), UTF_8);
      assertTrue(node.waitFor(100, TimeUnit.SECONDS));
      assertEquals(0, node.exitValue(), out);
      JsonObject said = JsonParser.parseString(out).getAsJsonObject();
      assertEquals("[\"shakespeare\"]", said.get("models").toString());
      assertEquals("shakespeare", said.get("retrieved").getAsString());
      JsonArray choices = said.getAsJsonObject("whole").getAsJsonArray("choices");
      assertEquals(2, choices.size());
      JsonObject first = choices.get(0).getAsJsonObject();
      assertTrue(first.getAsJsonObject("logprobs").getAsJsonArray("tokens").size() > 0);
      assertTrue(said.get("text").getAsString().startsWith(first.get("text").getAsString()));
      assertFalse(said.get("answer").getAsString().isEmpty());
      assertEquals(said.get("answer"), said.get("streamed"));
      assertEquals(20, said.getAsJsonObject("usage").get("completion_tokens").getAsInt());
      assertEquals(
          "[[\"AuthenticationError\",401,\"invalid_api_key\",null],"
              + "[\"NotFoundError\",404,\"model_not_found\",\"model\"],"
              + "[\"BadRequestError\",400,\"context_length_exceeded\",\"prompt\"]]",
          said.get("errors").toString());
      served.awaitIdle();
    }
  }
}
