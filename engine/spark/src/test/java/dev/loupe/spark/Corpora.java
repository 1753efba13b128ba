package dev.loupe.spark;

import static org.apache.spark.sql.functions.bit_xor;
import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.count;
import static org.apache.spark.sql.functions.countDistinct;
import static org.apache.spark.sql.functions.lit;
import static org.apache.spark.sql.functions.struct;
import static org.apache.spark.sql.functions.xxhash64;

import dev.loupe.Backend;
import dev.loupe.corpus.CorpusJobs;
import dev.loupe.corpus.CorpusRun;
import dev.loupe.corpus.ModelPlace;
import dev.loupe.corpus.Preparation;
import dev.loupe.corpus.Preparation.Format;
import dev.loupe.corpus.Preparation.LongTexts;
import dev.loupe.ops.Precision;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.LongPredicate;
import java.util.stream.Collectors;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/** What tests of corpora share: documents, good and bad, and ways to ask for jobs on them. */
final class Corpora {
  static final Path DEMO = Path.of("../../test-data/shakespeare").toAbsolutePath().normalize();

  private static final List<String> WORDS =
      List.of(
          "my", "lord", "the", "king", "shall", "not", "love", "and", "death", "ROMEO:", "thou",
          "art", "a", "villain", "good", "night", "to", "be", "or", "what", "blood", "crown");

  private Corpora() {}

  /** Hears everything, and ends a job when told. */
  static final class Heard implements CorpusJobs.Listener {
    final List<String> notes = new CopyOnWriteArrayList<>();
    private final LongPredicate goesOn;

    /**
     * @param goesOn whether a job that has done so much goes on
     */
    Heard(LongPredicate goesOn) {
      this.goesOn = goesOn;
    }

    Heard() {
      this(_ -> true);
    }

    @Override
    public boolean progress(long done, long total) {
      return goesOn.test(done);
    }

    @Override
    public void note(String sentence) {
      notes.add(sentence);
    }
  }

  /**
   * Short documents as JSON lines, those of the last few kinds bad: of every hundred one that is
   * not UTF-8, one that is not JSON, one without a text, one that is empty, and one that is longer
   * than the demo model's context.
   */
  static void write(Path file, int documents) throws IOException {
    Random random = new Random(1);
    try (OutputStream out = Files.newOutputStream(file)) {
      for (int i = 0; i < documents; i++) {
        String text =
            random
                .ints(3 + random.nextInt(6), 0, WORDS.size())
                .mapToObj(WORDS::get)
                .collect(Collectors.joining(" "));
        byte[] line =
            switch (i % 100) {
              case 10 -> broken("{\"id\": \"d%d\", \"text\": \"%s ?\"}".formatted(i, text));
              case 20 -> utf8("{\"id\": \"d%d\", \"text\": \"%s".formatted(i, text));
              case 30 -> utf8("{\"id\": \"d%d\", \"words\": \"%s\"}".formatted(i, text));
              case 40 -> utf8("{\"id\": \"d%d\", \"text\": \"\"}".formatted(i));
              case 50 ->
                  utf8("{\"id\": \"d%d\", \"text\": \"%s\"}".formatted(i, "my lord, ".repeat(120)));
              default -> utf8("{\"id\": \"d%d\", \"text\": \"%s\"}".formatted(i, text));
            };
        out.write(line);
        out.write('\n');
      }
    }
  }

  private static byte[] utf8(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static byte[] broken(String text) {
    byte[] bytes = utf8(text);
    for (int i = 0; i < bytes.length; i++) {
      if (bytes[i] == '?') {
        bytes[i] = (byte) 0xff;
      }
    }
    return bytes;
  }

  static Preparation preparation(Path input, Path output) {
    return new Preparation(
        List.of(input.toString()),
        Format.AUTO,
        "text",
        Optional.of("id"),
        output.toString(),
        false,
        demo(),
        true,
        LongTexts.WINDOWS,
        12,
        4);
  }

  static ModelPlace demo() {
    return new ModelPlace(DEMO.toString(), false, Optional.empty());
  }

  static CorpusRun run(Path prepared, Path output) {
    return new CorpusRun(
        prepared.toString(),
        output.toString(),
        demo(),
        Backend.AUTO,
        Precision.F32,
        0,
        1024,
        true,
        true,
        false,
        2);
  }

  /** A session of tests on this machine. */
  static SparkSession local() {
    return SparkSession.builder()
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate();
  }

  /**
   * Says whether two runs wrote the same.
   *
   * @param rows how many there are
   * @param different how many windows and heads those are of; as many, if nothing is there twice
   * @param bits of all that is in them, in any order
   */
  record Sum(long rows, long different, long bits) {
    static Sum of(SparkSession spark, String folder) {
      Dataset<Row> rows = spark.read().parquet(folder).drop("wave");
      Column all =
          xxhash64(Arrays.stream(rows.columns()).map(name -> col(name)).toArray(Column[]::new));
      Row sum =
          rows.agg(
                  count(lit(1)),
                  countDistinct(
                      struct(
                          col(Results.DOC_ID),
                          col(Results.WINDOW),
                          col(Results.LAYER),
                          col(Results.HEAD))),
                  bit_xor(all))
              .first();
      return new Sum(sum.getLong(0), sum.getLong(1), sum.getLong(2));
    }
  }
}
