package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.attention.AttentionMaps;
import dev.loupe.generate.Generation;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class HeatMapPageTest {
  private static final String[] NASTY = {
    "<script>alert(1)</script>", "</script>", "<!--", "]]>", "&lt;", "€\uD83D\uDE00", "", "\u2028"
  };

  @TempDir Path folder;

  private String page(Generation run, ColourScale colour) throws IOException {
    Path file = folder.resolve("run.html");
    AttentionFormat.HTML.write(run, colour, file);
    return Files.readString(file);
  }

  private String page(Generation run) throws IOException {
    return page(run, ColourScale.SQUARE_ROOT);
  }

  /** What lies between a tag with this text in it and the next end tag, as a browser cuts it. */
  private static String block(String page, String tag) {
    int open = page.indexOf(tag);
    assertTrue(open >= 0, tag);
    int start = page.indexOf('>', open) + 1;
    return page.substring(start, page.indexOf("</", start));
  }

  @Test
  void theDataBlocksDecodeToTheVeryFloats() throws IOException {
    Generation run = Runs.random(new int[] {1, 3}, new int[] {0, 5}, 3, true, NASTY);
    String page = page(run);
    assertMaps(page, "weights", run.attention());
    assertMaps(page, "scores", run.scores().orElseThrow());
  }

  private static void assertMaps(String page, String kind, AttentionMaps maps) {
    for (int l = 0; l < maps.layers().length; l++) {
      for (int h = 0; h < maps.heads().length; h++) {
        byte[] bytes =
            Base64.getDecoder().decode(block(page, "id=\"%s-%d-%d\"".formatted(kind, l, h)));
        FloatBuffer floats = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
        for (int query = 0; query < maps.tokens(); query++) {
          float[] row = new float[query + 1];
          floats.get(row);
          assertArrayEquals(maps.row(maps.layers()[l], maps.heads()[h], query), row);
        }
        assertEquals(0, floats.remaining());
      }
    }
  }

  @Test
  void tokensAreDataThatNoMarkupCanLeave() throws IOException {
    String page = page(Runs.random(new int[] {1, 3}, new int[] {0, 5}, 3, false, NASTY));
    JsonObject run = JsonParser.parseString(block(page, "id=\"run\"")).getAsJsonObject();
    JsonArray tokens = run.getAsJsonArray("tokens");
    for (int i = 0; i < NASTY.length; i++) {
      assertEquals(NASTY[i], tokens.get(i).getAsJsonArray().get(0).getAsString());
    }
    assertFalse(page.contains("alert(1)<") || page.contains("<script>alert"), "escaped");
    // one data block, four maps and the program; the page opens and closes no others
    assertEquals(6, count(page, "<script"));
    assertEquals(6, count(page, "</script>"));
    assertEquals("[1,3]", run.get("layers").toString());
    assertEquals("[0,5]", run.get("heads").toString());
    assertEquals(3, run.get("promptLength").getAsInt());
    assertEquals(2, tokens.get(0).getAsJsonArray().size(), "no logprob, so none is written");
    assertEquals(-0.25, tokens.get(1).getAsJsonArray().get(2).getAsDouble());
  }

  private static int count(String text, String part) {
    return text.split(Pattern.quote(part), -1).length - 1;
  }

  @Test
  void nothingComesFromElsewhere() throws IOException {
    String page = page(Runs.random(new int[] {0}, new int[] {0}, 3, true, NASTY));
    assertFalse(page.contains("://"), "an address");
    assertFalse(page.contains("@import") || page.contains("url("), "a style from elsewhere");
    Matcher sources = Pattern.compile("\\b(?:src|href)=\"([^\"]*)\"").matcher(page);
    assertEquals(List.of("data:,"), sources.results().map(m -> m.group(1)).toList());
    for (String way :
        List.of(
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "fetch(",
            "XMLHttpRequest",
            "WebSocket",
            "import(")) {
      assertFalse(page.contains(way), way);
    }
    assertFalse(page.contains("{{"), "a placeholder is left");
  }

  @Test
  void thePolicyAllowsThisScriptAndThisStyleOnly() throws IOException, GeneralSecurityException {
    String page = page(Runs.random(new int[] {0}, new int[] {0}, 3, false, "a", "b"));
    Matcher policy =
        Pattern.compile(
                "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src"
                    + " data:; base-uri 'none'; form-action 'none'; script-src '(.*?)'; style-src"
                    + " '(.*?)'\"")
            .matcher(page);
    assertTrue(policy.find());
    assertEquals(sha256(page, "<script>", "</script>"), policy.group(1));
    assertEquals(sha256(page, "<style>", "</style>"), policy.group(2));
  }

  private static String sha256(String page, String open, String close)
      throws GeneralSecurityException {
    int start = page.indexOf(open) + open.length();
    byte[] content =
        page.substring(start, page.indexOf(close, start)).getBytes(StandardCharsets.UTF_8);
    return "sha256-"
        + Base64.getEncoder().encodeToString(MessageDigest.getInstance("SHA-256").digest(content));
  }

  @Test
  void itOpensWithTheHeadThatReadsOneTokenMostAmongThoseBetweenFirstAndLast() throws IOException {
    AttentionMaps maps = AttentionMaps.allocate(new int[] {2, 4}, new int[] {1, 3}, 3);
    maps.put(2, 1, 2, new float[] {0.9f, 0.1f, 0});
    maps.put(2, 3, 2, new float[] {0, 0.2f, 0.8f});
    maps.put(4, 1, 2, new float[] {0.3f, 0.4f, 0.3f});
    maps.put(4, 3, 2, new float[] {0.4f, 0.3f, 0.3f});
    Generation run = Runs.run(Runs.tokens(3, "a", "b", "c"), 3, maps, Optional.empty());
    JsonObject json =
        JsonParser.parseString(block(page(run, ColourScale.LINEAR), "id=\"run\""))
            .getAsJsonObject();
    assertEquals("[1,0]", json.get("start").toString());
    assertEquals("linear", json.get("scale").getAsString());
  }

  @Test
  void rolesGoByTheScoresOnThisText() throws IOException {
    String block = block(page(Runs.previousToken(33)), "id=\"run\"");
    JsonObject json = JsonParser.parseString(block).getAsJsonObject();
    assertEquals("[[null,\"previous token\"]]", json.get("roles").toString());
    String shorter = block(page(Runs.previousToken(31)), "id=\"run\"");
    assertEquals(
        "[[null,null]]", JsonParser.parseString(shorter).getAsJsonObject().get("roles").toString());
  }

  @Test
  void oneTokenIsEnough() throws IOException {
    Generation run = Runs.random(new int[] {5}, new int[] {2}, 1, false, "a");
    assertMaps(page(run), "weights", run.attention());
  }

  @Test
  void tooMuchForABrowserIsRefusedBeforeAnythingIsWritten() {
    int[] many = IntStream.range(0, 40).toArray();
    AttentionMaps maps = AttentionMaps.allocate(many, many, 143); // 65.9 MB, mostly untouched
    Generation run = Runs.run(Runs.tokens(143, Runs.labels(143)), 143, maps, Optional.empty());
    Path file = folder.resolve("big.html");
    String message =
        String.valueOf(
            assertThrows(
                    IllegalArgumentException.class, () -> AttentionFormat.HTML.write(run, file))
                .getMessage());
    assertTrue(message.contains("66 MB") && message.contains("fewer layers or heads"), message);
    assertFalse(Files.exists(file));
  }
}
