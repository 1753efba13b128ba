package dev.loupe.cli.run;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonParser;
import dev.loupe.cli.Child;
import dev.loupe.cli.Main;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.model.Golden;
import java.io.BufferedReader;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** {@code loupe serve} as a process: what it says, whom it serves, how it ends. */
@Timeout(200)
class ServeCommandTest {
  @TempDir Path folder;
  private Child child;

  @BeforeEach
  void child() {
    child = new Child(folder);
  }

  private Process serve(Object... more) throws Exception {
    List<String> command =
        Child.java(Main.class, List.of(), "serve", "--backend", "cpu", "--port", 0);
    for (Object word : more) {
      command.add(word.toString());
    }
    return child.start(command);
  }

  private static URI address(BufferedReader out) throws Exception {
    String line = out.readLine();
    assertTrue(line != null && line.matches("shakespeare is served at http://\\S+:\\d+"), line);
    return URI.create(
        line.replaceFirst(".* ", "").replace("0.0.0.0", "127.0.0.1") + "/v1/completions");
  }

  private static HttpRequest post(URI address, String body, String... headers) {
    HttpRequest.Builder request = HttpRequest.newBuilder(address);
    request.POST(BodyPublishers.ofString(body.replace('\'', '"')));
    return (headers.length == 0 ? request : request.headers(headers)).build();
  }

  @ParameterizedTest
  @ValueSource(strings = {"INT", "TERM"})
  void servesUntilASignalAndEndsWhatRunsWithWhatItHas(String signal) throws Exception {
    Child.assumeIsHeard(signal);
    Process process = serve("-m", Golden.DEMO_MODEL.resolve("."));
    try (BufferedReader out = process.inputReader(UTF_8);
        HttpClient client = HttpClient.newHttpClient()) {
      URI address = address(out);
      String text =
          JsonParser.parseString(
                  client
                      .send(
                          post(
                              address,
                              "{'prompt': 'ROMEO:', 'max_tokens': 20, 'seed': 3, 'temperature': 0.8, 'top_k': 40, 'top_p': 0.95}"),
                          BodyHandlers.ofString())
                      .body())
              .getAsJsonObject()
              .getAsJsonArray("choices")
              .get(0)
              .getAsJsonObject()
              .get("text")
              .getAsString();
      assertEquals(
          Ran.loupe("generate", "ROMEO:", "-n", 20, "--seed", 3, "--backend", "cpu").well().out(),
          text,
          "what loupe generate writes with these settings");
      HttpResponse<InputStream> stream =
          client.send(
              post(address, "{'max_tokens': 255, 'n': 64, 'stream': true}"),
              BodyHandlers.ofInputStream());
      byte[] first = stream.body().readNBytes(300);
      Child.signal(process, signal);
      String said = new String(first, UTF_8) + new String(stream.body().readAllBytes(), UTF_8);
      assertTrue(said.endsWith("data: [DONE]\n\n"), "to its end");
      assertTrue(said.length() < 64 * 255 * 200, "early");
      assertEquals(null, out.readLine());
    }
    assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    assertEquals(Child.exitCode(signal), process.exitValue());
    assertEquals("[open that in a browser for the workbench; Ctrl-C ends it]\n", child.said());
  }

  @Test
  void warnsWhenAnybodyIsServed() throws Exception {
    Process process = serve("--host", "0.0.0.0");
    try (BufferedReader out = process.inputReader(UTF_8)) {
      address(out);
      assertTrue(child.said().contains("anybody who reaches 0.0.0.0"), child.said());
      assertTrue(child.said().contains("--api-key-file or LOUPE_API_KEY"), child.said());
    } finally {
      process.destroy();
      assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    }
  }

  @Tag("sweep")
  @Test
  void readsTheKeyFromAFile() throws Exception {
    Path key = Files.writeString(folder.resolve("key"), "s3cret\n");
    Process process = serve("--host", "0.0.0.0", "--api-key-file", key);
    try (BufferedReader out = process.inputReader(UTF_8);
        HttpClient client = HttpClient.newHttpClient()) {
      URI address = address(out);
      String body = "{'max_tokens': 1}";
      HttpRequest right = post(address, body, "Authorization", "Bearer s3cret");
      assertEquals(200, client.send(right, BodyHandlers.ofString()).statusCode());
      assertEquals(401, client.send(post(address, body), BodyHandlers.ofString()).statusCode());
      assertEquals("[open that in a browser for the workbench; Ctrl-C ends it]\n", child.said());
    } finally {
      process.destroy();
      assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    }
  }

  @Test
  void refusesKeysThatAreNone() throws Exception {
    Path empty = Files.writeString(folder.resolve("empty"), "\n");
    Ran.loupe("serve", "--api-key-file", empty).refused(ExitCode.BAD_INPUT, "empty", "no API key");
    Ran.loupe("serve", "--api-key-file", folder).refused(ExitCode.BAD_INPUT, "not a regular file");
    Path two = Files.writeString(folder.resolve("two"), "a\nb");
    Ran.loupe("serve", "--api-key-file", two).refused(ExitCode.BAD_USAGE, "API key", "header");
  }

  /** A model's folder with a template that names a special token. */
  private Path talking() throws Exception {
    Path model = Files.createDirectory(folder.resolve("model"));
    try (DirectoryStream<Path> files = Files.newDirectoryStream(Golden.DEMO_MODEL)) {
      for (Path file : files) {
        Files.copy(file, model.resolve(file.getFileName()));
      }
    }
    Files.writeString(
        model.resolve("tokenizer_config.json"),
        """
        {"bos_token": "<|endoftext|>", "chat_template": [{"name": "tool_use", "template": "x"},
         {"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}:"}]}
        """);
    return model;
  }

  @Tag("sweep")
  @Test
  void talksByTheTemplateOfTheModelsFiles() throws Exception {
    talks(talking());
  }

  @Tag("sweep")
  @Test
  void talksByTheTemplateInAGgufFile() throws Exception {
    Path file = Files.createDirectory(folder.resolve("alone")).resolve("m.gguf");
    Ran.loupe("weights", "convert", talking(), file, "--dtype", "f32").well();
    talks(file);
  }

  private void talks(Path model) throws Exception {
    Process process = serve("-m", model);
    try (BufferedReader out = process.inputReader(UTF_8);
        HttpClient client = HttpClient.newHttpClient()) {
      String line = String.valueOf(out.readLine());
      URI address = URI.create(line.replaceFirst(".* ", "") + "/v1/chat/completions");
      String body = "{'messages': [{'role': 'user', 'content': 'ROMEO'}], 'max_tokens': 3}";
      HttpResponse<String> answer = client.send(post(address, body), BodyHandlers.ofString());
      assertEquals(200, answer.statusCode(), answer.body());
      String run =
          Ran.loupe("generate", "<|endoftext|>ROMEO:", "--special", "-n", 1, "--json").well().out();
      assertEquals(
          JsonParser.parseString(run).getAsJsonObject().get("prompt_len"),
          JsonParser.parseString(answer.body())
              .getAsJsonObject()
              .getAsJsonObject("usage")
              .get("prompt_tokens"));
    } finally {
      process.destroy();
      assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    }
  }

  @Test
  void refusesTemplatesThatAreNone() throws Exception {
    Path none = folder.resolve("none");
    Ran.loupe("serve", "--chat-template", none).refused(ExitCode.BAD_INPUT, none, "does not exist");
    Path bad = Files.writeString(folder.resolve("bad"), "{% for x in y %}");
    Ran.loupe("serve", "--chat-template", bad)
        .refused(ExitCode.BAD_INPUT, "bad", "Missing end tag");
    Path latin = Files.write(folder.resolve("latin"), new byte[] {(byte) 0xe4});
    Ran.loupe("serve", "--chat-template", latin).refused(ExitCode.BAD_INPUT, "latin", "UTF-8");
    Path large = Files.write(folder.resolve("large"), new byte[(1 << 20) + 1]);
    Ran.loupe("serve", "--chat-template", large)
        .refused(ExitCode.BAD_INPUT, large, "1048577", "a chat template");
    Ran.loupe("serve", "--chat-template", "/dev/zero")
        .refused(ExitCode.BAD_INPUT, "/dev/zero", "not a regular file");
  }

  @Test
  void saysThatThePortIsTaken() throws Exception {
    try (ServerSocket taken = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      Ran.loupe("serve", "--port", taken.getLocalPort(), "--backend", "cpu")
          .refused(ExitCode.BAD_USAGE, "port " + taken.getLocalPort(), "127.0.0.1", "--port");
    }
  }
}
