package dev.loupe.spark;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.corpus.ModelPlace;
import dev.loupe.corpus.Preparation;
import dev.loupe.corpus.Preparation.Format;
import dev.loupe.corpus.Preparation.LongTexts;
import dev.loupe.spark.Corpora.Heard;
import dev.loupe.text.Tokenizer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.zip.GZIPOutputStream;
import org.apache.spark.sql.Row;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Inputs of every format, cut into windows, shards and waves. */
class CorpusInputsTest extends CorpusFixture {
  @Tag("sweep")
  @Test
  void textFilesLinesAndParquetAreReadToo() throws Exception {
    Path texts = Files.createDirectories(folder.resolve("texts/sub"));
    Files.writeString(texts.resolve("one.txt"), "my lord");
    Files.writeString(texts.resolveSibling("two words.txt"), "good night");
    Files.write(texts.resolve("bad.txt"), new byte[] {'a', (byte) 0xff});
    Files.write(texts.resolve("empty.txt"), new byte[0]);
    Files.write(texts.resolve("torn.txt.gz"), new byte[] {1, 2, 3});
    Files.writeString(texts.resolve("_hidden.txt"), "nobody");
    try (GZIPOutputStream out =
        new GZIPOutputStream(Files.newOutputStream(texts.resolve("three.txt.gz")))) {
      out.write("the king".getBytes(StandardCharsets.UTF_8));
    }
    try (GZIPOutputStream out =
        new GZIPOutputStream(Files.newOutputStream(texts.resolve("bomb.txt.gz")))) {
      for (int i = 0; i < 65; i++) {
        out.write(new byte[1 << 20]);
      }
    }
    assertEquals(
        Map.of(
            "sub/one.txt", "",
            "two words.txt", "",
            "sub/three.txt.gz", "",
            "sub/bad.txt", "it is not UTF-8",
            "sub/empty.txt", "it is empty",
            "sub/bomb.txt.gz", "it has more than 64 MiB",
            "sub/torn.txt.gz", "it can't be decompressed"),
        prepare("texts", Format.AUTO, null, LongTexts.WINDOWS));

    Path lines = folder.resolve("some, more.log");
    Files.writeString(lines, "my lord\n\ngood night\n");
    assertEquals(
        Map.of("some, more.log@0", "", "some, more.log@9", ""),
        prepare("some, more.log", Format.LINES, null, LongTexts.WINDOWS));

    List<String> objects =
        List.of(
            "{\"k\": {\"a\": 1}, \"body\": \"my lord\"}",
            "{\"k\": 7, \"body\": \"good night\"}",
            "{\"body\": \"the king\"}",
            "{\"k\": \"x\", \"body\": 5}",
            "[1]",
            "{\"k\": \"y\", \"body\": \"my lord\"} {}");
    Files.write(folder.resolve("odd.jsonl"), objects);
    int[] starts = new int[objects.size()];
    for (int i = 1; i < starts.length; i++) {
      starts[i] = starts[i - 1] + objects.get(i - 1).length() + 1;
    }
    assertEquals(
        Map.of(
            "odd.jsonl@0",
            "it has no id: no field \"k\"",
            "7",
            "",
            "odd.jsonl@" + starts[2],
            "it has no id: no field \"k\"",
            "x",
            "it has no text: no string in field \"body\"",
            "odd.jsonl@" + starts[4],
            "the line is not a JSON object",
            "odd.jsonl@" + starts[5],
            "the line is not a JSON object"),
        prepare("odd.jsonl", Format.AUTO, "k", LongTexts.WINDOWS));

    Path table = folder.resolve("table");
    spark
        .sql(
            "select * from values (1, 'my lord'), (2, null), (null, 'night'), (4, repeat('my lord ', 300)) as t(k, body)")
        .coalesce(1)
        .write()
        .parquet(table.toString());
    Map<String, String> named = prepare("table", Format.AUTO, "k", LongTexts.REFUSE);
    assertEquals("", named.get("1"));
    assertEquals("it has no text", named.get("2"));
    assertTrue(
        String.valueOf(named.get("4")).matches("it has .* tokens and the model reads 256"),
        named::toString);
    assertEquals(4, named.size());
    assertTrue(named.containsValue("it has no id"), named::toString);
  }

  /** Prepares an input of the folder: what is wrong with each document, by id. */
  private static Map<String, String> prepare(
      String input, Format format, @Nullable String id, LongTexts longTexts) throws Exception {
    Path out = folder.resolve("prepared-" + input);
    Preparation what =
        new Preparation(
            List.of(folder.resolve(input).toString()),
            format,
            "body",
            Optional.ofNullable(id),
            out.toString(),
            false,
            Corpora.demo(),
            true,
            longTexts,
            2,
            1);
    jobs.prepare(what, new Heard());
    Map<String, String> errors = new HashMap<>();
    for (Row row :
        spark.read().parquet(out.resolve(Prepared.DOCUMENTS).toString()).collectAsList()) {
      String error = row.getAs(Results.ERROR);
      errors.put(
          row.getAs(Results.DOC_ID),
          error == null
              ? ""
              : error.startsWith("it can't be") ? "it can't be decompressed" : error);
    }
    return errors;
  }

  /** As a prompt begins with it; what was prepared with another setting is not taken for this. */
  @Tag("sweep")
  @Test
  void windowsBeginWithWhatGoesInFront() throws Exception {
    Path model = Files.createDirectory(folder.resolve("with-front"));
    for (String name : List.of("config.json", "model.safetensors")) {
      Files.copy(Corpora.DEMO.resolve(name), model.resolve(name));
    }
    String json = Files.readString(Corpora.DEMO.resolve("tokenizer.json"));
    Files.writeString(
        model.resolve("tokenizer.json"),
        json.replaceFirst(
            "\"post_processor\": \\{[^}]*\\}",
            "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"<|endoftext|>\",1023],"
                + "\"sep\":[\"<|endoftext|>\",1023]}"));
    Path text =
        Files.writeString(folder.resolve("long.txt"), "ROMEO: a word and another.\n".repeat(60));
    int[] own;
    try (Tokenizer tokenizer = Tokenizer.open(model)) {
      assertEquals(List.of(1023), Arrays.stream(tokenizer.front()).boxed().toList());
      own = tokenizer.encode(Files.readString(text), false);
    }
    for (boolean front : new boolean[] {true, false}) {
      Path out = folder.resolve("prepared-front-" + front);
      Preparation what =
          new Preparation(
              List.of(text.toString()),
              Format.AUTO,
              "text",
              Optional.empty(),
              out.toString(),
              false,
              new ModelPlace(model.toString(), false, Optional.empty()),
              front,
              LongTexts.WINDOWS,
              1,
              1);
      Heard heard = new Heard();
      jobs.prepare(what, heard);
      assertTrue(heard.notes.toString().contains("in front of a text"), heard.notes::toString);
      int[] read =
          spark.read().parquet(out.resolve(Prepared.DOCUMENTS).toString()).collectAsList().stream()
              .sorted(Comparator.comparingInt(row -> row.<Integer>getAs(Results.WINDOW)))
              .map(row -> row.<Integer>getList(row.fieldIndex(Prepared.IDS)))
              .peek(ids -> assertTrue(ids.size() <= 256 && (ids.getFirst() == 1023) == front))
              .flatMapToInt(ids -> ids.stream().skip(front ? 1 : 0).mapToInt(id -> id))
              .toArray();
      assertTrue(own.length > 2 * 256);
      assertArrayEquals(own, read);
    }
  }

  @Test
  void shardsAndWavesFollowTheSize() {
    Preparation open =
        new Preparation(
            List.of("in"),
            Format.AUTO,
            "text",
            Optional.empty(),
            "out",
            false,
            Corpora.demo(),
            true,
            LongTexts.WINDOWS,
            0,
            0);
    assertEquals(List.of(8, 1), List.of(open.sized(0).shards(), open.sized(0).waves()));
    assertEquals(8, open.sized(8 << 18).shards());
    assertEquals(
        List.of(9, 2),
        List.of(open.sized((8 << 18) + 1).shards(), open.sized((8 << 18) + 1).waves()));
    assertEquals(1 << 20, open.sized(Long.MAX_VALUE).shards());
    int waves = 5;
    for (int shard = 0, last = 0; shard < 12; shard++) {
      int wave = RunJob.waveOf(shard, 12, waves);
      assertTrue(wave == last || wave == last + 1, shard + ": " + wave);
      last = wave;
      assertTrue(wave < waves);
    }
  }
}
