package dev.loupe.cli;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import dev.loupe.TinyModel;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.model.Golden;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** {@code loupe attention}, {@code loupe weights} and {@code loupe doctor}. */
class CommandsTest {
  @TempDir Path folder;

  @Test
  void attentionPrintsWhatEachTokenReadMost() {
    Ran ran = Ran.loupe("attention", "To be or not to be", "--top", 2).well();
    List<String> lines = ran.out().lines().toList();
    assertTrue(lines.getFirst().contains("average of layers 0-5, heads 0-2"), ran.out());
    assertEquals(8, lines.size(), "a header and a line for each token");
    assertTrue(lines.get(1).matches("T +0 +T +0 +1\\.000"), lines.get(1));
    for (String line : lines) {
      assertTrue(line.length() <= 80, line);
    }
    double sum = 0;
    String[] words = lines.get(2).split(" +", -1); // token, position, then key, position, weight
    for (int i = 4; i < words.length; i += 3) {
      sum += Double.parseDouble(words[i]);
    }
    assertEquals(1, sum, 0.002, lines.get(2));
    assertEquals("", ran.err());
    assertEquals(ran.out(), Ran.reading("To be or not to be", "attention", "--top", 2).out());
  }

  @Test
  void attentionShowsHeadsThatDifferUnlessAFileIsWritten() {
    String heads = Ran.loupe("attention", "To be or").well().out();
    assertTrue(heads.startsWith("what each token reads most, in the 4 of 18 heads that "), heads);
    assertTrue(heads.contains("head 4.0"), heads);
    String three = Ran.loupe("attention", "To be or", "--top", 3).well().out();
    assertTrue(three.startsWith("what each token reads most: average of "), three);
    Path file = folder.resolve("a.csv");
    assertEquals("", Ran.loupe("attention", "To be or", "--attention", file).well().out());
    Ran both = Ran.loupe("attention", "To be or", "--attention", file, "--top", 3).well();
    assertEquals(three, both.out());
    assertTrue(both.err().contains(file.toString()), both.err());
    assertEquals("", Ran.loupe("attention", "To be or", "--attention", file, "-q").well().err());
  }

  @Test
  void attentionOfChosenHeads() {
    String one = Ran.loupe("attention", "To be", "--layers", 2, "--heads", 1).well().out();
    assertTrue(one.contains("head 2.1"), one);
    String all = Ran.loupe("attention", "To be").well().out();
    assertFalse(all.equals(one));
  }

  @Test
  void attentionAsJson() {
    Ran ran = Ran.loupe("attention", "To be", "--json", "--heads", "0,2", "--logprobs", 1).well();
    assertEquals(1, ran.json().size());
    JsonObject run = ran.json().getFirst();
    assertEquals("", run.get("text").getAsString());
    JsonObject maps = run.getAsJsonObject("attention");
    int tokens = run.getAsJsonArray("tokens").size();
    assertEquals(tokens, run.get("prompt_len").getAsInt());
    assertEquals("[6,2," + tokens + "," + tokens + "]", maps.get("shape").toString());
    assertEquals("[0,2]", maps.get("heads").toString());
    assertTrue(maps.get("file").isJsonNull());
    assertTrue(
        run.getAsJsonArray("tokens").get(1).getAsJsonObject().get("logprob").getAsDouble() < 0);
  }

  @Test
  void inspectDescribesAModel() {
    Ran text = Ran.loupe("weights", "inspect").well();
    assertTrue(text.out().contains("n_layer 6") && text.out().contains("2,915,328"), text.out());
    assertFalse(text.out().contains("h.3."), "layers are summed up");
    assertTrue(Ran.loupe("weights", "inspect", "--all").well().out().contains("h.3.ln_1.bias"));
    JsonObject json = Ran.loupe("weights", "inspect", "--json").well().json().getFirst();
    assertTrue(json.toString().contains("h.3.ln_1.bias"), json.toString());
    String hash = "b50b41ca6b77f07de65f29a3223f150c7110da2ffb3a5f7e87eabf9be4211de9";
    assertTrue(text.out().contains("sha256       " + hash), text.out());
    assertEquals(hash, json.get("sha256").getAsString());
    assertEquals("", text.err());
    for (String line : text.out().lines().toList()) {
      assertTrue(line.length() <= 80, line);
    }
  }

  @Test
  void makeRandomMakesAModelThatRuns() throws IOException {
    Path made = folder.resolve("tiny");
    Ran ran = Ran.loupe("weights", "make-random", made, "--size", "tiny", "--seed", 4).well();
    assertEquals("", ran.out());
    assertTrue(ran.err().contains(made.toString()) && ran.err().contains("seed 4"), ran.err());
    assertEquals(List.of("config.json", "model.safetensors", "tokenizer.json"), Ran.names(made));
    Ran text = Ran.loupe("generate", "-m", made, "-n", 8, "--seed", 1, "ROMEO:").well();
    Ran fromFile =
        Ran.loupe(
                "generate", "-m", made.resolve("model.safetensors"), "-n", 8, "--seed", 1, "ROMEO:")
            .well();
    assertFalse(text.out().isEmpty());
    assertEquals(text.out(), fromFile.out());

    Path again = folder.resolve("again");
    assertEquals(
        "",
        Ran.loupe("weights", "make-random", again, "--size", "tiny", "--seed", 4, "-q")
            .well()
            .err());
    assertArrayEquals(
        Files.readAllBytes(made.resolve("model.safetensors")),
        Files.readAllBytes(again.resolve("model.safetensors")));
  }

  @Test
  void makeRandomReplacesNothing() throws IOException {
    Path made = TinyModel.in(folder.resolve("tiny")).folder();
    byte[] before = Files.readAllBytes(made.resolve("model.safetensors"));
    Ran.loupe("weights", "make-random", made, "--size", "tiny", "--seed", 9)
        .refused(ExitCode.FAILED, made, "already holds a model");
    assertArrayEquals(before, Files.readAllBytes(made.resolve("model.safetensors")));
    Path file = Files.writeString(folder.resolve("file"), "");
    Ran.loupe("weights", "make-random", file, "--size", "tiny")
        .refused(ExitCode.FAILED, file, "is a file");

    Path mine = Files.createDirectory(folder.resolve("mine"));
    Files.writeString(mine.resolve("tokenizer.json"), "mine");
    Ran.loupe("weights", "make-random", mine, "--size", "tiny").well();
    assertEquals("mine", Files.readString(mine.resolve("tokenizer.json")));
  }

  @Test
  void convertWritesOneFileWithTheTokenizerInIt() throws IOException {
    Path file = folder.resolve("demo.gguf");
    Ran ran = Ran.loupe("weights", "convert", Golden.DEMO_MODEL, file, "--dtype", "q8_0").well();
    assertEquals("", ran.out());
    assertTrue(ran.err().contains(file.toString()) && ran.err().contains("bytes"), ran.err());
    byte[] bytes = Files.readAllBytes(file);
    assertEquals("GGUF", new String(bytes, 0, 4, UTF_8));
    String text = new String(bytes, ISO_8859_1);
    for (String word : List.of("tokenizer.ggml.merges", "blk.5.ffn_down.weight", "<|endoftext|>")) {
      assertTrue(text.contains(word), word);
    }
    // after the key: array, of what, its length, then a number for each token
    int kinds = text.indexOf("tokenizer.ggml.token_type") + "tokenizer.ggml.token_type".length();
    ByteBuffer numbers = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    assertEquals(1024, numbers.getLong(kinds + 8));
    assertEquals(1, numbers.getInt(kinds + 16), "a token of BPE");
    assertEquals(3, numbers.getInt(kinds + 16 + 4 * 1023), "<|endoftext|>");
    assertFalse(text.contains("[PAD"), "the demo model has a token for every row");
    Ran.loupe("weights", "convert", Golden.DEMO_MODEL, file)
        .refused(ExitCode.FAILED, file, "exists");
    assertArrayEquals(bytes, Files.readAllBytes(file));
    Path empty = Files.createDirectory(folder.resolve("empty"));
    Ran.loupe("weights", "convert", empty, folder.resolve("x"))
        .refused(ExitCode.BAD_INPUT, empty, "holds no model.safetensors");
    assertEquals(List.of("demo.gguf", "empty"), Ran.names(folder));
  }

  @Test
  void convertWritesAFolderThatIsTheSameModel() throws IOException {
    Path copy = folder.resolve("copy");
    Ran ran = Ran.loupe("weights", "convert", Golden.DEMO_MODEL, copy, "--dtype", "f32").well();
    assertEquals("", ran.out());
    assertEquals(1, ran.err().lines().count(), ran.err());
    assertEquals(List.of("config.json", "model.safetensors", "tokenizer.json"), Ran.names(copy));
    assertArrayEquals(
        Files.readAllBytes(Golden.DEMO_MODEL.resolve("tokenizer.json")),
        Files.readAllBytes(copy.resolve("tokenizer.json")));
    Object[] generate = {"generate", "ROMEO:", "-n", 20, "--seed", 1, "-q", "-m", copy};
    String text = Ran.loupe(generate).well().out();
    generate[generate.length - 1] = Golden.DEMO_MODEL;
    assertEquals(text, Ran.loupe(generate).well().out());
    assertEquals(
        "equal: 76 tensors, every bit\n",
        Ran.loupe("weights", "verify", Golden.DEMO_MODEL, copy).well().out());
    Ran.loupe("weights", "convert", Golden.DEMO_MODEL, copy)
        .refused(ExitCode.FAILED, copy, "already holds a model");

    Path file = Files.createDirectory(folder.resolve("file")).resolve("m.safetensors");
    assertEquals("", Ran.loupe("weights", "convert", Golden.DEMO_MODEL, file, "-q").well().err());
    assertEquals(
        List.of("config.json", "m.safetensors", "tokenizer.json"),
        Ran.names(folder.resolve("file")));
  }

  @Test
  void convertDoesWithoutATokenizer() throws IOException {
    TinyModel model = TinyModel.in(folder.resolve("tiny"));
    Files.delete(model.tokenizer());
    Path copy = folder.resolve("copy");
    Ran ran = Ran.loupe("weights", "convert", model.folder(), copy).well();
    assertTrue(ran.err().contains("no tokenizer that"), ran.err());
    assertEquals(List.of("config.json", "model.safetensors"), Ran.names(copy));
    Files.writeString(model.tokenizer(), "{");
    Ran.loupe("weights", "convert", model.folder(), folder.resolve("broken"))
        .refused(ExitCode.BAD_INPUT, model.tokenizer());
    assertFalse(Files.exists(folder.resolve("broken")));
  }

  @Test
  void verifySaysHowFarTwoModelsLieApart() throws IOException {
    TinyModel a = TinyModel.in(folder.resolve("a"));
    TinyModel b = TinyModel.in(folder.resolve("b"));
    assertEquals(
        "equal: 40 tensors, every bit\n",
        Ran.loupe("weights", "verify", a.folder(), b.weights()).well().out());
    a.poke("h.1.mlp.c_fc.bias", 9, 0.5f);
    b.poke("h.1.mlp.c_fc.bias", 9, 0.25f);
    Ran differ = Ran.loupe("weights", "verify", a.folder(), b.folder(), "--tolerance", 0.2);
    assertEquals(ExitCode.FAILED, differ.code());
    assertEquals("", differ.err());
    List<String> lines = differ.out().lines().toList();
    assertEquals(3, lines.size(), differ.out());
    assertTrue(
        lines.get(1).matches("h\\.1\\.mlp\\.c_fc\\.bias +\\[256] +F32 +0\\.250 +9"), lines.get(1));
    assertEquals("different: 1 of 40 tensors, by up to 0.250, in h.1.mlp.c_fc.bias", lines.get(2));
    Ran near = Ran.loupe("weights", "verify", a.folder(), b.folder(), "--tolerance", 0.25, "-q");
    assertEquals(
        "equal within 0.250: 40 tensors, by up to 0.250, in h.1.mlp.c_fc.bias\n",
        near.well().out());
    Ran all = Ran.loupe("weights", "verify", a.folder(), b.folder(), "--all");
    assertEquals(42, all.out().lines().count());
    for (String line : all.out().lines().toList()) {
      assertTrue(line.length() <= 80, line);
    }
  }

  @Test
  void verifyOfModelsThatComputeOtherwise() throws IOException {
    TinyModel a = TinyModel.in(folder.resolve("a"));
    TinyModel b = TinyModel.in(folder.resolve("b"));
    b.config("\"gelu_new\"", "\"relu\"");
    Ran ran = Ran.loupe("weights", "verify", a.folder(), b.folder());
    assertEquals(ExitCode.FAILED, ran.code());
    assertTrue(ran.out().startsWith("activation_function gelu_new and relu\n"), ran.out());
    assertTrue(ran.out().contains("the models compute otherwise"), ran.out());
    ran = Ran.loupe("weights", "verify", a.folder(), Golden.DEMO_MODEL);
    assertEquals(ExitCode.FAILED, ran.code());
    assertTrue(ran.out().contains("n_layer 3 and 6"), ran.out());
    assertTrue(ran.out().endsWith("different: the models have other shapes\n"), ran.out());
    Ran.loupe("weights", "verify", a.folder(), folder.resolve("c"))
        .refused(ExitCode.BAD_INPUT, folder.resolve("c"), "does not exist");
  }

  @Test
  void doctorSaysWhatWorks() {
    Ran ran = Ran.loupe("doctor").well();
    for (String word : List.of("loupe", "processors", "java heap", "vectors", "nvidia driver")) {
      assertTrue(ran.out().lines().anyMatch(line -> line.startsWith(word)), word);
    }
    assertTrue(ran.out().contains("demo model         works"), ran.out());
    assertEquals("", ran.err());
  }

  @Test
  void doctorHasNoControlCharactersOnTheTerminal() throws IOException {
    Path home = Files.createDirectory(folder.resolve("a\u001b]0;home"));
    Files.createDirectories(home.resolve("test-data/shakespeare"));
    String before = System.setProperty("loupe.home", home.toString());
    try {
      Ran ran = Ran.loupe("doctor");
      assertTrue(ran.out().contains("demo model         fails: "), ran.out());
      assertTrue(ran.out().contains("aU+001B]0;home"), ran.out());
    } finally {
      if (before == null) {
        System.clearProperty("loupe.home");
      } else {
        System.setProperty("loupe.home", before);
      }
    }
  }
}
