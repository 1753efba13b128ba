package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.OptionalInt;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TokenizerTest {
  private static final int END_OF_TEXT = 50256;
  private static Tokenizer gpt2;
  private static Tokenizer pair;
  private static Tokenizer shakespeare;

  @BeforeAll
  static void open(@TempDir Path folder) throws IOException {
    for (String file : new String[] {"vocab.json", "merges.txt"}) {
      Files.copy(TestData.GPT2.resolve(file), folder.resolve(file));
    }
    gpt2 = Tokenizer.open(TestData.GPT2);
    pair = Tokenizer.open(folder);
    shakespeare = Tokenizer.open(TestData.SHAKESPEARE);
  }

  @AfterAll
  static void close() {
    gpt2.close();
    pair.close();
    shakespeare.close();
  }

  @Test
  void idsAreOpenAis() throws IOException {
    int texts = 0;
    for (JsonElement golden :
        TestData.json(TestData.GPT2.resolve("golden-ids.json")).getAsJsonArray()) {
      JsonObject object = golden.getAsJsonObject();
      String text = object.get("text").getAsString();
      int[] ids = TestData.ids(object);
      assertArrayEquals(ids, gpt2.encode(text, false), text);
      assertArrayEquals(ids, gpt2.encode(text, true), text);
      assertArrayEquals(ids, pair.encode(text, false), text);
      assertEquals(text, gpt2.decode(ids));
      assertEquals(text, pair.decode(ids));
      texts++;
    }
    assertEquals(44, texts);
  }

  @Test
  void goldenRunsOfTheDemoModel() throws IOException {
    int runs = 0;
    try (DirectoryStream<Path> folders =
        Files.newDirectoryStream(TestData.ROOT.resolve("golden"))) {
      for (Path folder : folders) {
        Path meta = folder.resolve("meta.json");
        JsonObject run =
            Files.exists(meta) ? TestData.json(meta).getAsJsonObject() : new JsonObject();
        if (run.has("ids") && run.has("text")) {
          String text = run.get("text").getAsString();
          assertArrayEquals(TestData.ids(run), shakespeare.encode(text, true), folder.toString());
          String plain = text.replace("<|endoftext|>", "");
          assertEquals(plain, shakespeare.decode(TestData.ids(run)), folder.toString());
          runs++;
        }
      }
    }
    assertTrue(runs >= 8, () -> "no golden runs found");
  }

  @Test
  void bothLoadersGiveTheSameTokens() {
    assertEquals(50257, gpt2.size());
    assertEquals(50257, pair.size());
    for (int id = 0; id < gpt2.size(); id++) {
      assertEquals(gpt2.raw(id), pair.raw(id));
      assertArrayEquals(gpt2.bytes(id), pair.bytes(id));
      assertEquals(id == END_OF_TEXT, gpt2.isSpecial(id));
      assertEquals(id == END_OF_TEXT, pair.isSpecial(id));
      assertEquals(OptionalInt.of(id), gpt2.idOf(gpt2.raw(id)));
    }
    assertEquals("Ġking", gpt2.raw(5822));
    assertArrayEquals(" king".getBytes(UTF_8), gpt2.bytes(5822));
    assertArrayEquals("<|endoftext|>".getBytes(UTF_8), gpt2.bytes(END_OF_TEXT));
    assertEquals(OptionalInt.empty(), gpt2.idOf(" king"));
  }

  @Test
  void idsThatAreNotThere() {
    for (int id : new int[] {-1, 50257, Integer.MIN_VALUE, Integer.MAX_VALUE}) {
      assertFalse(gpt2.contains(id));
      assertFalse(gpt2.isSpecial(id));
      IllegalArgumentException e =
          assertThrows(IllegalArgumentException.class, () -> gpt2.decode(new int[] {1, id}));
      assertEquals("no token has id " + id + ": the tokenizer's ids end at 50256", e.getMessage());
    }
  }

  @Test
  void endOfTextIsPlainTextUnlessAskedFor() {
    int[] plain = {27, 91, 437, 1659, 5239, 91, 29}; // what OpenAI's encoder makes of it
    assertArrayEquals(plain, gpt2.encode("<|endoftext|>", false));
    assertArrayEquals(plain, pair.encode("<|endoftext|>", false));
    assertEquals("<|endoftext|>", gpt2.decode(plain));
    int[] special = {64, END_OF_TEXT, END_OF_TEXT, 65};
    assertArrayEquals(special, gpt2.encode("a<|endoftext|><|endoftext|>b", true));
    assertArrayEquals(special, pair.encode("a<|endoftext|><|endoftext|>b", true));
    assertEquals("ab", gpt2.decode(special));
    assertArrayEquals(gpt2.encode("<|endoftext|", false), gpt2.encode("<|endoftext|", true));
  }

  /** Pieces that stress the split pattern: every kind of space, letters, digits, marks, quotes. */
  private static final String[] PIECES = {
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\u000B",
    "\u001C",
    "\u0085",
    "\u00A0",
    "\u2003",
    "\u2028",
    "\u200B",
    "\u3000",
    "\uFEFF",
    "'s",
    "'S",
    "'ll",
    "'",
    "’s",
    "don't",
    "a",
    "The",
    "é",
    "e\u0301",
    "ß",
    "Ж",
    "日本",
    "한국어",
    "नमस्ते",
    "ﷺ",
    "1",
    "42",
    "²",
    "Ⅷ",
    "½",
    "٣",
    "!",
    "...",
    "—",
    "_",
    "<|endoftext|>",
    "<|",
    "|>",
    "\u0000",
    "\u0001",
    "\u007F",
    "\u00AD",
    "\uFFFD",
    "\uE000",
    "\uFFFF",
    "😀",
    "👩‍👩‍👧",
    "\uD835\uDD38",
    "\uDBFF\uDFFF",
    "\\",
    "\"",
    "Ġ",
    "Ċ",
    "#",
    "# #",
    "/**",
    "=="
  };

  private static String randomText(Random random) {
    StringBuilder text = new StringBuilder();
    for (int n = random.nextInt(12); n > 0; n--) {
      text.append(PIECES[random.nextInt(PIECES.length)]);
    }
    return text.toString();
  }

  @Test
  void agreesWithTheReferenceOnNastyText() throws IOException {
    ReferenceBpe reference = new ReferenceBpe(TestData.GPT2);
    Random random = new Random(20260701);
    for (int i = 0; i < 2000; i++) {
      String text = randomText(random);
      int[] ids = gpt2.encode(text, false);
      assertArrayEquals(reference.encode(text), ids, () -> escaped(text));
      assertEquals(text, gpt2.decode(ids));
    }
  }

  @Test
  void everyCodePointComesBack() {
    StringBuilder text = new StringBuilder();
    Random random = new Random(7);
    for (int c = 0; c <= Character.MAX_CODE_POINT; c += c < 0x3000 ? 1 : 1 + random.nextInt(40)) {
      if (c < Character.MIN_SURROGATE || c > Character.MAX_SURROGATE) {
        text.appendCodePoint(c);
      }
    }
    String all = text.toString();
    assertEquals(all, gpt2.decode(gpt2.encode(all, false)));
    assertEquals(all, shakespeare.decode(shakespeare.encode(all, false)));
  }

  @Test
  void loneSurrogatesCountAsReplacementCharacters() {
    String[] cases = {"\uD83D", "\uDE00", "a\uD83Db", "\uDE00\uD83D", "\uD83D\uD83D\uDE00\u0000"};
    for (String text : cases) {
      String whole =
          new String(
              text.codePoints().map(c -> c >= 0xD800 && c < 0xE000 ? 0xFFFD : c).toArray(),
              0,
              (int) text.codePoints().count());
      assertEquals(whole, gpt2.decode(gpt2.encode(text, false)), escaped(text));
      assertArrayEquals(gpt2.encode(whole, false), gpt2.encode(text, true), escaped(text));
    }
  }

  @Test
  void longTextIsNotCut() {
    String text = "The cat sat on the mat. ".repeat(45_000); // 1.08 million characters
    int[] ids = gpt2.encode(text, false);
    assertEquals(315_001, ids.length);
    assertEquals(text, gpt2.decode(ids));
    String word = "a".repeat(1 << 18);
    assertEquals(word, gpt2.decode(gpt2.encode(word, false)));
    String spaces = " ".repeat(1 << 18) + "x";
    assertEquals(spaces, gpt2.decode(gpt2.encode(spaces, false)));
  }

  @Test
  void nothingIsTrimmedOrAdded() {
    assertArrayEquals(new int[0], gpt2.encode("", false));
    assertArrayEquals(new int[0], gpt2.encode("", true));
    assertEquals("", gpt2.decode(new int[0]));
    assertArrayEquals(new int[] {220}, gpt2.encode(" ", false));
    assertArrayEquals(new int[] {198}, gpt2.encode("\n", true));
  }

  @Test
  void brokenBytesAreReplacedAsStringDoes() {
    int[] ids = {0x41 - 0x21, 47249, 0x41 - 0x21, 222}; // A, three bytes of an emoji, A, its last
    assertEquals("A\uFFFDA\uFFFD", gpt2.decode(ids));
  }

  @Test
  void closedTokenizerRefusesToEncodeButStillDecodes() throws IOException {
    Tokenizer tokenizer = Tokenizer.open(TestData.SHAKESPEARE);
    tokenizer.close();
    tokenizer.close();
    IllegalStateException e =
        assertThrows(IllegalStateException.class, () -> tokenizer.encode("a", false));
    assertEquals("tokenizer is closed", e.getMessage());
    assertEquals("!", tokenizer.decode(new int[] {0}));
  }

  @Test
  void closingWhileOthersEncode() throws Exception {
    String text = "To be, or not to be, that is the question. ".repeat(20);
    int[] expected = shakespeare.encode(text, false);
    ExecutorService threads = Executors.newFixedThreadPool(4);
    try {
      for (int round = 0; round < 20; round++) {
        Tokenizer tokenizer = Tokenizer.open(TestData.SHAKESPEARE);
        Future<?>[] encoders = new Future<?>[4];
        for (int i = 0; i < encoders.length; i++) {
          encoders[i] =
              threads.submit(
                  () -> {
                    while (true) {
                      int[] ids;
                      try {
                        ids = tokenizer.encode(text, false);
                      } catch (IllegalStateException e) {
                        return e.getMessage();
                      }
                      assertArrayEquals(expected, ids);
                    }
                  });
        }
        Thread.sleep(2);
        tokenizer.close();
        for (Future<?> encoder : encoders) {
          assertEquals("tokenizer is closed", encoder.get(100, TimeUnit.SECONDS));
        }
      }
    } finally {
      threads.shutdownNow();
    }
  }

  private static String escaped(String text) {
    StringBuilder result = new StringBuilder();
    text.chars().forEach(c -> result.append("\\u%04X".formatted(c)));
    return result.toString();
  }
}
