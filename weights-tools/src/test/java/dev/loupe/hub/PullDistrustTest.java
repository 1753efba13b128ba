package dev.loupe.hub;

import static dev.loupe.hub.FakeHub.cdn;
import static dev.loupe.hub.FakeHub.get;
import static dev.loupe.hub.FakeHub.head;
import static dev.loupe.hub.FakeHub.status;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.io.CheckpointException;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** A hub that refuses, sends one elsewhere or lies: nothing is taken at its word. */
@Timeout(200)
class PullDistrustTest extends PullFixture {
  @ParameterizedTest
  @ValueSource(
      strings = {
        "{\"weight_map\": {\"a\": \"../../evil\"}}",
        "{\"weight_map\": {\"a\": \"README.md/\"}}",
        "{\"weight_map\": {\"a\": \"missing.safetensors\"}}",
        "{\"weight_map\": {\"a\": 1}}",
        "{\"weight_map\": 1}",
        "{}",
        "[",
        ""
      })
  void anIndexIsNotTrusted(String index) throws IOException {
    server.remove(WEIGHTS);
    server.put("model.safetensors.index.json", index);
    server.put("../../evil", "x");
    assertTrue(refused("model.safetensors.index.json") instanceof CheckpointException);
    assertFalse(Files.exists(folder.resolve("model.safetensors.index.json")));
  }

  @ParameterizedTest
  @CsvSource({
    "401, HF_TOKEN, false",
    "403, terms, false",
    "404, check the name, true",
    "400, status 400, false",
    "451, status 451, false"
  })
  void aRefusalIsSaidAtOnce(int status, String word, boolean input) throws IOException {
    server.fault(FakeHub.LIST, status(status));
    assertEquals(input, refused(word) instanceof CheckpointException);
    assertFalse(Files.exists(folder));
    server.fault(cdn(WEIGHTS), status(status));
    refused(WEIGHTS, Integer.toString(status));
    assertEquals(1, requests("GET cdn").size());
  }

  @Test
  void aRevisionThatIsMissingIsNamed() throws IOException {
    server.fault(FakeHub.LIST, status(404, "X-Error-Code", "RevisionNotFound"));
    refused("no such revision", FakeHub.NAME);
  }

  @Test
  void otherContentMidwayIsNotMixedIn() throws IOException {
    server.fault(cdn(WEIGHTS), server.cut(WEIGHTS, 1_000_000));
    byte[] other = FakeHub.weights();
    other[2_999_999]++;
    server.fault(
        cdn(WEIGHTS),
        exchange -> {
          server.put(WEIGHTS, other); // the hub's word comes from its announcement before
          server.cdnEtag = "\"v2\"";
          return false;
        });
    refused(WEIGHTS, "SHA-256", FakeHub.sha256(other), FakeHub.sha256(FakeHub.weights()));
    assertTrue(requests("GET cdn").get(1).contains("\"v1\""), "" + server.log());
    assertEquals(List.of(".loupe-pull"), names(folder));
    assertEquals(0, requests("GET cdn").size() - 2, "no third time");
  }

  @Test
  void anotherAnnouncementMidwayIsSaid() throws IOException {
    left(Arrays.copyOf(FakeHub.weights(), 1000));
    byte[] other = new byte[3_000_000];
    server.fault(
        get(WEIGHTS),
        exchange -> {
          server.put(WEIGHTS, other);
          return false;
        });
    refused(WEIGHTS, "changed", "start again");
    pull();
    assertArrayEquals(other, Files.readAllBytes(folder.resolve(WEIGHTS)));
    assertEquals(FILES, names(folder), "the part of the old version is gone");
  }

  @Test
  void liesAboutTheHashAreFound() throws IOException {
    server.announce(WEIGHTS, "a".repeat(64), 3_000_000);
    refused(WEIGHTS, "SHA-256", "a".repeat(64));
    assertEquals(1, requests("GET cdn").size(), "it came in one go: no use to try again");
  }

  @Test
  void liesAboutASmallFilesHashAreFound() throws IOException {
    server.announce("config.json", "b".repeat(40), 0);
    refused("config.json", "Git SHA-1", "b".repeat(40));
  }

  @ParameterizedTest
  @ValueSource(longs = {0, 2_999_999, 3_000_001, 999_999_999})
  void liesAboutTheSizeAreFound(long size) throws IOException {
    server.announce(WEIGHTS, FakeHub.sha256(FakeHub.weights()), size);
    refused(WEIGHTS);
  }

  @Test
  void moreThanTheDiskHoldsIsNotBegun() throws IOException {
    server.announce(WEIGHTS, "a".repeat(64), 900_000_000_000_000_000L);
    refused("bytes more", "has room for");
    assertEquals(List.of(), requests("GET cdn"));
    assertFalse(Files.exists(folder));
  }

  @Test
  void moreBytesThanAnnouncedAreNotWritten() throws IOException {
    server.faults(
        cdn(WEIGHTS),
        exchange -> {
          exchange.sendResponseHeaders(200, 0); // chunked: no length
          exchange.getResponseBody().write(FakeHub.weights());
          exchange.getResponseBody().write(new byte[1000]);
          return true;
        });
    refused(WEIGHTS, "more bytes");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "bytes 0-2999999/3000000",
        "bytes 100-2999999/3000000",
        "bytes 1000-2999999/5000000",
        "bytes 1000-1999/3000000",
        "nonsense",
        ""
      })
  void otherBytesThanAskedForAreNotTaken(String range) throws IOException {
    left(Arrays.copyOf(FakeHub.weights(), 1000));
    server.faults(
        cdn(WEIGHTS),
        exchange -> {
          exchange.getResponseHeaders().set("Content-Range", range);
          FakeHub.send(exchange, 206, new byte[2_999_000]);
          return true;
        });
    refused("sent other bytes of " + WEIGHTS, "tried 3 times");
    assertEquals(List.of(".loupe-pull"), names(folder));
  }

  @Test
  void circlesOfRedirectsEnd() throws IOException {
    for (int i = 0; i < 11; i++) {
      server.fault(get(WEIGHTS), status(302, "Location", get(WEIGHTS).substring(4)));
    }
    refused("circles", WEIGHTS);
    server.fault(FakeHub.LIST, status(307, "Location", FakeHub.LIST.substring(4)));
    pull();
    assertWhole();
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"file:///etc/passwd", "ftp://localhost/x", "", "http://", "::", "http:/x y"})
  void redirectsLeadToTheWebOnly(String location) throws IOException {
    server.fault(get(WEIGHTS), status(302, "Location", location));
    refused("redirects " + WEIGHTS);
  }

  @Test
  void redirectsLeadFromASecureServerToASecureOneOnly() throws IOException {
    URI secure = URI.create("https://hub.example.org/a/b");
    assertEquals(URI.create("https://hub.example.org/c"), Hub.next(secure, "/c", "x"));
    assertEquals(URI.create("https://cdn.org/c"), Hub.next(secure, "https://cdn.org/c", "x"));
    assertThrows(IOException.class, () -> Hub.next(secure, "http://hub.example.org/a/b", "x"));
  }

  @Test
  void aSmallFileMayLieElsewhereOnTheHub() throws IOException {
    for (String request : List.of(head("config.json"), get("config.json"))) {
      String elsewhere = "/api/resolve-cache/models/" + FakeHub.NAME + "/config.json";
      server.fault(request, status(307, "Location", elsewhere));
    }
    pull();
    assertWhole();
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "<html>log in</html>",
        "",
        "[]",
        "{}",
        "{\"sha\": \"0123456789\"}",
        "{\"sha\": \"../../x\", \"siblings\": []}",
        "{\"sha\": \"0123456789\", \"siblings\": [1]}",
        "{\"sha\": \"0123456789\", \"siblings\": [{\"rfilename\": null}]}"
      })
  void anAnswerThatIsNoHubsIsSaid(String answer) throws IOException {
    server.fault(
        FakeHub.LIST,
        exchange -> {
          FakeHub.send(exchange, 200, answer.getBytes(UTF_8));
          return true;
        });
    refused("not as a hub does", "address");
  }

  @Test
  void anEndlessListIsNotRead() throws IOException {
    server.fault(
        FakeHub.LIST,
        exchange -> {
          exchange.sendResponseHeaders(200, 0);
          for (int i = 0; i < 400; i++) {
            exchange.getResponseBody().write(new byte[1 << 16]);
          }
          return true;
        });
    refused("lists more than");
  }

  @Test
  void deepJsonIsNoStackOverflow() throws IOException {
    server.fault(
        FakeHub.LIST,
        exchange -> {
          FakeHub.send(exchange, 200, "[".repeat(1_000_000).getBytes(UTF_8));
          return true;
        });
    refused("not as a hub does");
  }

  @Test
  void whatCannotBeCheckedIsNotFetched() throws IOException {
    server.faults(
        head("config.json"),
        exchange -> {
          exchange.getResponseHeaders().set("ETag", "\"abc\"");
          FakeHub.send(exchange, 200, server.bytes("config.json"));
          return true;
        });
    refused("no hash of config.json");
  }
}
