package dev.loupe.spark;

import static org.apache.spark.sql.functions.col;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import com.google.gson.Strictness;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import dev.loupe.corpus.CorpusException;
import dev.loupe.corpus.Preparation;
import dev.loupe.corpus.Preparation.Format;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.io.StringReader;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.io.compress.CompressionCodecFactory;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.input.FileSplit;
import org.apache.hadoop.mapreduce.lib.input.TextInputFormat;
import org.apache.spark.api.java.JavaNewHadoopRDD;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.util.LongAccumulator;
import org.jspecify.annotations.Nullable;
import scala.Tuple2;

/** The documents of a corpus, wherever they lie: id and text, or id and what is wrong with it. */
final class Documents {
  /** Of one document. A small file may be a large one compressed. */
  private static final int MOST_BYTES = 64 << 20;

  private static final List<String> COMPRESSED = List.of(".gz", ".bz2", ".zst", ".lz4", ".snappy");

  /**
   * One document.
   *
   * @param text null where there is an error
   */
  record Document(String id, @Nullable String text, @Nullable String error)
      implements Serializable {
    static Document broken(String id, String error) {
      return new Document(id, null, error);
    }
  }

  /**
   * What lies in the inputs, so that a change is noticed.
   *
   * @param roots folders that file names are told from
   * @param empty files without a byte, which Spark's readers leave out
   */
  record Census(
      Format format,
      List<String> roots,
      List<String> empty,
      long files,
      long bytes,
      long changed) {}

  private final SparkSession spark;
  private final Preparation what;
  private final LongAccumulator read;
  private final Configuration hadoop;

  /**
   * @param read counts bytes
   */
  Documents(SparkSession spark, Preparation what, LongAccumulator read) {
    this.spark = spark;
    this.what = what;
    this.read = read;
    hadoop = spark.sparkContext().hadoopConfiguration();
  }

  /**
   * Looks at the inputs without reading them.
   *
   * @throws CorpusException if one is missing or of no known format
   */
  Census census() throws IOException {
    List<String> roots = new ArrayList<>();
    List<String> empty = new ArrayList<>();
    Set<Format> formats = new TreeSet<>();
    long files = 0;
    long bytes = 0;
    long changed = 0;
    for (String input : what.inputs()) {
      Path pattern = new Path(input);
      FileSystem system = FileSystems.of(pattern, hadoop);
      FileStatus[] found = system.globStatus(pattern);
      if (found == null || found.length == 0) {
        throw new CorpusException(input + " does not exist");
      }
      for (FileStatus entry : found) {
        boolean alone = what.inputs().size() == 1 && found.length == 1;
        Path root = entry.isDirectory() && alone ? entry.getPath() : entry.getPath().getParent();
        roots.add(root == null ? entry.getPath().toString() : root.toString());
        RemoteIterator<LocatedFileStatus> all = system.listFiles(entry.getPath(), true);
        while (all.hasNext()) {
          LocatedFileStatus file = all.next();
          if (hidden(file.getPath(), entry.getPath())) {
            continue;
          }
          FileSystems.requireRegular(file.getPath());
          if (file.getLen() == 0) {
            empty.add(file.getPath().toString());
          }
          files++;
          bytes += file.getLen();
          changed = Math.max(changed, file.getModificationTime());
          if (what.format() == Format.AUTO) {
            formats.add(formatOf(file.getPath()));
          }
        }
      }
    }
    if (files == 0) {
      throw new CorpusException("no files in " + String.join(", ", what.inputs()));
    }
    if (formats.size() > 1) {
      throw new CorpusException(
          "the inputs are of several formats (%s): prepare each by itself, or give --format"
              .formatted(
                  String.join(
                      ", ",
                      formats.stream().map(f -> f.name().toLowerCase(Locale.ROOT)).toList())));
    }
    Format format = formats.isEmpty() ? what.format() : formats.iterator().next();
    return new Census(format, roots.stream().distinct().toList(), empty, files, bytes, changed);
  }

  /** As Spark's and Hadoop's own readers have it. */
  private static boolean hidden(Path file, Path top) {
    for (Path at = file; at != null && !at.equals(top); at = at.getParent()) {
      if (at.getName().startsWith("_") || at.getName().startsWith(".")) {
        return true;
      }
    }
    return false;
  }

  private static Format formatOf(Path file) throws CorpusException {
    String name = file.getName().toLowerCase(Locale.ROOT);
    for (String ending : COMPRESSED) {
      if (name.endsWith(ending)) {
        name = name.substring(0, name.length() - ending.length());
      }
    }
    String ending = name.substring(name.lastIndexOf('.') + 1);
    return switch (ending) {
      case "txt", "text", "md" -> Format.TEXT;
      case "jsonl", "ndjson", "json" -> Format.JSON;
      case "parquet" -> Format.PARQUET;
      default ->
          throw new CorpusException(
              "%s: its ending says no format; give --format text, lines, json or parquet"
                  .formatted(file));
    };
  }

  /** All of them, in no order. */
  JavaRDD<Document> read(Census census) throws IOException {
    return switch (census.format()) {
      case TEXT -> files(census);
      case LINES -> lines(census.roots(), null, null);
      case JSON -> lines(census.roots(), what.textField(), what.idField().orElse(null));
      case PARQUET -> rows(census.roots());
      case AUTO -> throw new IllegalArgumentException("a census knows the format");
    };
  }

  private JavaRDD<Document> files(Census census) {
    List<String> roots = census.roots();
    LongAccumulator bytes = read; // a task takes that along, not this
    @SuppressWarnings("resource") // the session's own
    JavaSparkContext context = new JavaSparkContext(spark.sparkContext());
    List<Document> empty =
        census.empty().stream().map(path -> new Document(place(path, roots), "", null)).toList();
    Dataset<Row> files =
        spark
            .read()
            .format("binaryFile")
            .option("recursiveFileLookup", "true")
            .load(what.inputs().toArray(String[]::new))
            .select("path", "content");
    return files
        .toJavaRDD()
        .map(
            row -> {
              String path = row.getString(0);
              String id = place(path, roots);
              byte[] content = row.getAs(1);
              bytes.add(content.length);
              try {
                return decoded(id, uncompressed(path, content));
              } catch (IOException e) {
                return Document.broken(id, "it can't be decompressed: " + e.getMessage());
              }
            })
        .union(context.parallelize(empty, 1));
  }

  private static byte[] uncompressed(String path, byte[] content) throws IOException {
    CompressionCodec codec =
        new CompressionCodecFactory(new Configuration()).getCodec(new Path(path));
    if (codec == null) {
      return content;
    }
    try (InputStream in = codec.createInputStream(new ByteArrayInputStream(content))) {
      return in.readNBytes(MOST_BYTES + 1);
    }
  }

  /** Lines that are documents, or JSON objects if a field is given. */
  private JavaRDD<Document> lines(
      List<String> roots, @Nullable String textField, @Nullable String idField) throws IOException {
    LongAccumulator bytes = read;
    Job job = Job.getInstance(hadoop);
    FileInputFormat.setInputDirRecursive(job, true);
    FileInputFormat.setInputPaths(job, what.inputs().stream().map(Path::new).toArray(Path[]::new));
    @SuppressWarnings("resource") // the session's own
    JavaSparkContext context = new JavaSparkContext(spark.sparkContext());
    JavaNewHadoopRDD<LongWritable, Text> lines =
        (JavaNewHadoopRDD<LongWritable, Text>)
            context.newAPIHadoopRDD(
                job.getConfiguration(), TextInputFormat.class, LongWritable.class, Text.class);
    return lines.mapPartitionsWithInputSplit(
        (split, all) -> {
          String file = place(((FileSplit) split).getPath().toString(), roots);
          return stream(all)
              .peek(line -> bytes.add(line._2.getLength() + 1L))
              .filter(line -> !blank(line._2))
              .map(
                  line -> {
                    Document whole = decoded(file + "@" + line._1.get(), line._2.copyBytes());
                    return textField == null ? whole : parsed(whole, textField, idField);
                  })
              .iterator();
        },
        true);
  }

  private static Stream<Tuple2<LongWritable, Text>> stream(
      Iterator<Tuple2<LongWritable, Text>> all) {
    Iterable<Tuple2<LongWritable, Text>> once = () -> all;
    return StreamSupport.stream(once.spliterator(), false);
  }

  private static boolean blank(Text line) {
    for (int i = 0; i < line.getLength(); i++) {
      if (line.getBytes()[i] > ' ' || line.getBytes()[i] < 0) {
        return false;
      }
    }
    return true;
  }

  private static Document parsed(Document line, String textField, @Nullable String idField) {
    String text = line.text();
    if (text == null) {
      return line;
    }
    JsonObject object;
    try {
      JsonReader in = new JsonReader(new StringReader(text));
      in.setStrictness(Strictness.STRICT);
      JsonElement element = JsonParser.parseReader(in);
      if (!element.isJsonObject() || in.peek() != JsonToken.END_DOCUMENT) {
        return Document.broken(line.id(), "the line is not a JSON object");
      }
      object = element.getAsJsonObject();
    } catch (JsonParseException | IOException e) {
      return Document.broken(line.id(), "the line is not a JSON object");
    }
    String id = line.id();
    if (idField != null) {
      JsonElement given = object.get(idField);
      if (given == null || !given.isJsonPrimitive()) {
        return Document.broken(id, "it has no id: no field \"%s\"".formatted(idField));
      }
      id = given.getAsString();
    }
    JsonElement value = object.get(textField);
    if (value == null || !value.isJsonPrimitive() || !value.getAsJsonPrimitive().isString()) {
      return Document.broken(id, "it has no text: no string in field \"%s\"".formatted(textField));
    }
    return new Document(id, value.getAsString(), null);
  }

  private JavaRDD<Document> rows(List<String> roots) throws CorpusException {
    Dataset<Row> all =
        spark
            .read()
            .option("recursiveFileLookup", "true")
            .parquet(what.inputs().toArray(String[]::new));
    List<String> columns = Arrays.asList(all.columns());
    for (String wanted :
        what.idField().isPresent()
            ? List.of(what.textField(), what.idField().get())
            : List.of(what.textField())) {
      if (!columns.contains(wanted)) {
        throw new CorpusException(
            "no column \"%s\" in %s: there are %s"
                .formatted(wanted, String.join(", ", what.inputs()), String.join(", ", columns)));
      }
    }
    String type = all.schema().apply(what.textField()).dataType().typeName();
    if (!type.equals("string") && !type.equals("binary")) {
      throw new CorpusException("column \"%s\" is %s, not text".formatted(what.textField(), type));
    }
    LongAccumulator bytes = read;
    boolean named = what.idField().isPresent();
    return all.select(
            col("`" + what.textField() + "`").cast(DataTypes.BinaryType),
            named
                ? col("`" + what.idField().get() + "`").cast(DataTypes.StringType)
                : col("_metadata.file_path"),
            col("_metadata.file_path"),
            col("_metadata.row_index"))
        .toJavaRDD()
        .map(
            row -> {
              String file = new Path(URI.create(row.getString(2))).toString();
              String here = place(file, roots) + "@" + row.getLong(3);
              if (row.isNullAt(1)) {
                return Document.broken(here, "it has no id");
              }
              String id = named ? row.getString(1) : here;
              if (row.isNullAt(0)) {
                return Document.broken(id, "it has no text");
              }
              byte[] text = row.getAs(0);
              bytes.add(text.length);
              return decoded(id, text);
            });
  }

  /** A file by its path within the inputs. */
  private static String place(String path, List<String> roots) {
    String plain = withoutScheme(path);
    String longest = "";
    for (String root : roots) {
      String prefix = withoutScheme(root) + "/";
      if (plain.startsWith(prefix) && prefix.length() > longest.length()) {
        longest = prefix;
      }
    }
    return plain.substring(longest.length());
  }

  /** {@code file:/a}, {@code file:///a} and {@code /a} are one file. */
  private static String withoutScheme(String path) {
    return path.replaceFirst("^file:/+", "/");
  }

  private static Document decoded(String id, byte[] bytes) {
    if (bytes.length > MOST_BYTES) {
      return Document.broken(id, "it has more than %d MiB".formatted(MOST_BYTES >> 20));
    }
    try {
      String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
      return new Document(id, text, null);
    } catch (CharacterCodingException e) {
      return Document.broken(id, "it is not UTF-8");
    }
  }
}
