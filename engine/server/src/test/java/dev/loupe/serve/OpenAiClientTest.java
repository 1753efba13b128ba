package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * What OpenAI's own client for Node makes of the answers. Needs node, and a folder LOUPE_OPENAI in
 * which {@code npm install openai} was run.
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

  @Test
  void understandsTheAnswers() throws Exception {
    String home = System.getenv("LOUPE_OPENAI");
    assumeTrue(home != null, "LOUPE_OPENAI names no folder with OpenAI's client for Node");
    Path client = Path.of(String.valueOf(home), "node_modules", "openai", "index.mjs");
    Path script = Files.writeString(folder.resolve("client.mjs"), SCRIPT);
    ServerOptions options = Served.options();
    try (Served served =
        Served.start(
            new ServerOptions(
                options.host(),
                0,
                Optional.of("s3cret"),
                options.queue(),
                options.slots(),
                options.timeout(),
                options.model()))) {
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
