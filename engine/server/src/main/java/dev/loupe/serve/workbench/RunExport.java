package dev.loupe.serve.workbench;

import dev.loupe.Loupe;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.export.AttentionFormat;
import dev.loupe.export.TemporaryFile;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Exchange;
import dev.loupe.serve.http.Outbox;
import dev.loupe.serve.workbench.Runs.Run;
import dev.loupe.text.Count;
import dev.loupe.weights.config.Gpt2Config;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Locale;
import java.util.Map;

/** The maps of a run as a file that a browser saves. */
final class RunExport {
  /** Bytes of maps in a file: what a browser takes without complaint. */
  private static final long MOST_EXPORT = 64_000_000;

  /** Bytes of all files that are made and not yet taken. They lie on the disk. */
  private static final long MOST_FILES = 1L << 30;

  /** Bytes of a line of CSV, about; what JSON and npz take is less. */
  private static final int WEIGHT_IN_FILE = 40;

  private final Loupe loupe;
  private final String model;
  private final Runs runs;
  private final Readings readings;
  private final Outbox files = new Outbox(MOST_FILES);

  /**
   * @param model what clients call it; files are named after it
   */
  RunExport(Loupe loupe, String model, Runs runs, Readings readings) {
    this.loupe = loupe;
    this.model = model;
    this.runs = runs;
    this.readings = readings;
  }

  /**
   * Sends the file that a query asks for.
   *
   * @param deadline of System.nanoTime
   * @throws ApiException if there is no such file, or it would be too large
   */
  void send(Exchange exchange, String id, Query query, long deadline) throws InterruptedException {
    Gpt2Config config = loupe.info().config();
    String as = query.text("as");
    AttentionFormat format =
        switch (as) {
          case "npz" -> AttentionFormat.NPZ;
          case "json" -> AttentionFormat.JSON;
          case "csv" -> AttentionFormat.CSV;
          case "html" -> AttentionFormat.HTML;
          default -> throw ApiException.invalid(400, null, "as is npz, json, csv or html");
        };
    int layer = query.number("l", -1, 0, config.nLayer() - 1);
    int head = query.number("h", -1, 0, Integer.MAX_VALUE);
    Run run = runs.look(all -> all.run(id));
    run.spec().requireCausal("files are written");
    int length = run.spec().length();
    long maps = (layer < 0 ? config.nLayer() : 1L) * (head < 0 ? run.cache().heads() : 1L);
    requireSmall(maps, length);
    String name =
        "loupe-%s%s%s.%s"
            .formatted(
                model.replaceAll("[^A-Za-z0-9._-]+", "-"),
                layer < 0 ? "" : "-" + layer,
                head < 0 ? "" : (layer < 0 ? "-all." : ".") + head,
                as);
    String type =
        switch (format) {
          case CSV -> "text/csv; charset=utf-8";
          case JSON -> "application/json; charset=utf-8";
          case HTML -> "text/html; charset=utf-8";
          default -> "application/octet-stream";
        };
    Map<String, String> headers =
        Map.of("content-disposition", "attachment; filename=\"%s\"".formatted(name));
    TemporaryFile file = null;
    try {
      long weights = maps * length * (length + 1L) / 2;
      file =
          readings.amongRuns(
              exchange,
              files,
              weights * WEIGHT_IN_FILE,
              deadline,
              () -> file(exchange, run, format, layer, head));
      try (InputStream content = file.open()) {
        exchange.send(200, type, file.bytes(), content, headers);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e); // as where memory ends: the operator is told
    } finally {
      if (file != null) {
        file.close();
      }
    }
  }

  private static void requireSmall(long maps, long tokens) {
    long bytes = maps * tokens * tokens * Float.BYTES;
    if (bytes > MOST_EXPORT) {
      throw ApiException.invalid(
          400,
          null,
          String.format(
              Locale.ROOT,
              "%s of %s would be %.0f MB, more than a browser should hold: choose a layer or a"
                  + " head, or use loupe attention",
              Count.of(maps, "map"),
              Count.of(tokens, "token"),
              bytes / 1e6));
    }
  }

  private TemporaryFile file(
      Exchange exchange, Run run, AttentionFormat format, int layer, int head) {
    AttentionSelection selection = AttentionSelection.all();
    if (layer >= 0) {
      selection = selection.layers(layer);
    }
    if (head >= 0) {
      selection = selection.heads(head);
    }
    GenerateRequest request =
        run.spec()
            .writing()
            .tokens(0)
            .logprobs(0)
            .attention(selection)
            .listener(Readings.wanted(exchange));
    Generation read = loupe.run(request).getFirst();
    try {
      return format.temporary(read);
    } catch (IOException e) {
      throw ApiException.failed(500, null, "the file could not be made: " + e.getMessage());
    }
  }
}
