package dev.loupe.cli.corpus;

import dev.loupe.Backend;
import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.options.QuietOption;
import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.corpus.CorpusJobs;
import dev.loupe.corpus.CorpusReport;
import dev.loupe.corpus.CorpusRun;
import dev.loupe.corpus.Preparation;
import dev.loupe.generate.BatchReader;
import dev.loupe.ops.Precision;
import dev.loupe.text.Count;
import dev.loupe.weights.io.AtomicFile;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.ParentCommand;

/** {@code loupe corpus}: what heads do over many documents, on this machine or a cluster. */
@Command(
    name = "corpus",
    description = "Statistics of heads and log-probabilities over many documents, on Apache Spark.",
    synopsisSubcommandLabel = "COMMAND ...",
    optionListHeading = "%n",
    commandListHeading = "%nCommands:%n",
    subcommands = {
      CorpusCommand.Prepare.class,
      CorpusCommand.Run.class,
      CorpusCommand.Report.class
    },
    footerHeading = "%nIn this order:%n",
    footer = {
      "  loupe corpus prepare texts/ -o prepared",
      "  loupe corpus run prepared -o results",
      "  loupe corpus report results --html report.html"
    })
public final class CorpusCommand {
  @ParentCommand LoupeCommand parent;

  /** The streams of this run. */
  Terminal terminal() {
    return parent.terminal();
  }

  /** What all of them ask for. */
  static final class Common {
    @Option(
        names = "--threads",
        paramLabel = "N",
        description = "CPU threads, of each executor (default: all that it has).")
    int threads;

    @Mixin QuietOption quiet;
  }

  @Command(
      name = "prepare",
      description = {
        "Make documents ready for a model: tokenize them, cut those that are too long, sort them.",
        "A folder may hold text files, JSON lines or Parquet, plain or compressed."
      },
      optionListHeading = "%n",
      parameterListHeading = "%n",
      abbreviateSynopsis = true,
      sortOptions = false,
      footerHeading = "%nExamples:%n",
      footer = {
        "  loupe corpus prepare texts/ -o prepared",
        "  loupe corpus prepare news.jsonl.gz --text body --id url -m gpt2 -o prepared"
      })
  static final class Prepare implements Callable<Integer> {
    @ParentCommand CorpusCommand parent;

    @Parameters(paramLabel = "INPUT", arity = "1..*", description = "Files or folders.")
    List<String> inputs;

    @Option(
        names = {"-o", "--out"},
        paramLabel = "DIR",
        required = true,
        description = "Where the prepared documents go.")
    String out;

    @Option(
        names = "--format",
        paramLabel = "F",
        description =
            "text (a document is a file), lines (a line), json (an object on a line), parquet (a row);"
                + " default: by the files' endings.")
    Preparation.Format format = Preparation.Format.AUTO;

    @Option(
        names = "--text",
        paramLabel = "NAME",
        description = "Field or column of the text (default: text).")
    String text = "text";

    @Option(
        names = "--id",
        paramLabel = "NAME",
        description = "Field or column of the id (default: file and place).")
    @Nullable String id;

    @Option(
        names = "--no-bos",
        description =
            "Nothing in front of a window (default: what the tokenizer's files put in front of a"
                + " text).")
    boolean noBos;

    @Option(
        names = "--long",
        paramLabel = "L",
        description =
            "Documents longer than the context: windows cuts them, refuse records them (default:"
                + " windows).")
    Preparation.LongTexts longTexts = Preparation.LongTexts.WINDOWS;

    @Option(
        names = "--shards",
        paramLabel = "N",
        description =
            "Parts, each the work of one task (default: one for each 256 KiB, at least 8).")
    int shards;

    @Option(
        names = "--waves",
        paramLabel = "N",
        description =
            "Steps of a run; one that is interrupted goes on after the last finished one. A step should"
                + " have work for the whole cluster (default: one for each 8 shards).")
    int waves;

    @Option(names = "--overwrite", description = "Replace what is in DIR.")
    boolean overwrite;

    @Mixin Common common;

    @ArgGroup(validate = false, order = 1, heading = "%nModel:%n")
    CorpusModelOptions where = new CorpusModelOptions();

    @Override
    public Integer call() throws IOException {
      Terminal terminal = parent.terminal();
      Preparation what =
          new Preparation(
              inputs,
              format,
              text,
              Optional.ofNullable(id),
              out,
              overwrite,
              where.place(),
              !noBos,
              longTexts,
              shards,
              waves);
      try (CorpusWatch watch = new CorpusWatch(terminal, common.quiet.set, "preparing");
          CorpusJobs jobs = CorpusJobs.open("loupe corpus prepare", common.threads)) {
        CorpusJobs.Prepared done = jobs.prepare(what, watch);
        if (!common.quiet.set) {
          watch.note(
              String.format(
                  Locale.ROOT,
                  "%s%s, %s of %s%s",
                  done.existed() ? "prepared before: " : "",
                  Count.grouped(done.documents(), "document"),
                  Count.grouped(done.windows(), "window"),
                  Count.grouped(done.tokens(), "token"),
                  done.failed() == 0 ? "" : "; %,d failed".formatted(done.failed())));
        }
      }
      return 0;
    }
  }

  @Command(
      name = "run",
      description = {
        "Read documents that were prepared: of each its log-probability, and what every head did.",
        "An interrupted run goes on where it was if it is started again."
      },
      optionListHeading = "%n",
      parameterListHeading = "%n",
      abbreviateSynopsis = true,
      sortOptions = false,
      footerHeading = "%nExamples:%n",
      footer = {
        "  loupe corpus run prepared -o results",
        "  loupe corpus run prepared -m gpt2 --value-norms --edges 3 -o results"
      })
  static final class Run implements Callable<Integer> {
    @ParentCommand CorpusCommand parent;

    @Parameters(paramLabel = "PREPARED", description = "Folder that prepare wrote.")
    String prepared;

    @Option(
        names = {"-o", "--out"},
        paramLabel = "DIR",
        required = true,
        description = "Where the results go, as Parquet; each run has a folder in it.")
    String out;

    @Option(names = "--value-norms", description = "Attention weighted by what is read, too.")
    boolean valueNorms;

    @Option(
        names = "--edges",
        paramLabel = "K",
        description = "The K heaviest edges of each head, up to 8, without the first token's.")
    int edges;

    @Option(
        names = "--no-log-prob",
        description = "No log-probabilities: a third to half of the time.")
    boolean noLogprobs;

    @Option(names = "--no-statistics", description = "No statistics of heads.")
    boolean noStatistics;

    @Option(
        names = "--batch-tokens",
        paramLabel = "N",
        description = "Tokens of a pass, at least the context (default: ${DEFAULT-VALUE}).")
    int tokens = BatchReader.DEFAULT_TOKENS;

    @Mixin Common common;

    @ArgGroup(validate = false, order = 1, heading = "%nModel:%n")
    CorpusModelOptions where = new CorpusModelOptions();

    @Option(
        names = "--backend",
        paramLabel = "B",
        description =
            "auto, cpu or cuda; auto takes the card that Spark assigns, on one machine the first"
                + " (default: auto).")
    Backend backend = Backend.AUTO;

    @Option(
        names = "--dtype",
        paramLabel = "T",
        description = "Weights as f32, f16, bf16 or int8 (default: f32).")
    Precision precision = Precision.F32;

    @Override
    public Integer call() throws IOException {
      Terminal terminal = parent.terminal();
      CorpusRun what =
          new CorpusRun(
              prepared,
              out,
              where.place(),
              backend,
              precision,
              common.threads,
              tokens,
              !noLogprobs,
              !noStatistics,
              valueNorms,
              edges);
      CorpusJobs.Ran ran;
      try (CorpusWatch watch = new CorpusWatch(terminal, common.quiet.set, "reading");
          CorpusJobs jobs = CorpusJobs.open("loupe corpus run", common.threads)) {
        watch.interrupt.onlyAsk();
        ran = jobs.run(what, watch);
      }
      terminal.print(ran.folder() + "\n");
      if (!common.quiet.set) {
        terminal.say("[%s]".formatted(said(ran)));
      }
      return ran.interrupted() ? Interrupt.exitCode() : 0;
    }

    private static String said(CorpusJobs.Ran ran) {
      StringBuilder said = new StringBuilder();
      if (ran.waves() > 0) {
        said.append(
            String.format(
                Locale.ROOT,
                "%s, %s in %.1f s: %,.1f windows/s, %,.0f tokens/s",
                Count.grouped(ran.windows(), "window"),
                Count.grouped(ran.tokens(), "token"),
                ran.seconds(),
                ran.windows() / ran.seconds(),
                ran.tokens() / ran.seconds()));
        if (ran.failed() > 0) {
          said.append(String.format(Locale.ROOT, "; %,d failed", ran.failed()));
        }
      }
      if (ran.skipped() > 0) {
        said.append(said.isEmpty() ? "" : "; ")
            .append(
                "%d of %s there before"
                    .formatted(
                        ran.skipped(),
                        Count.of(ran.allWaves(), "wave")
                            + (ran.allWaves() == 1 ? " was" : " were")));
      }
      if (ran.interrupted()) {
        said.append(said.isEmpty() ? "" : "; ")
            .append(
                "interrupted: %d of %s done, the same command goes on from there"
                    .formatted(
                        ran.waves() + ran.skipped(),
                        Count.of(ran.allWaves(), "wave") + (ran.allWaves() == 1 ? " is" : " are")));
      }
      return said.toString();
    }
  }

  @Command(
      name = "report",
      description = {
        "Say what the results of a run come to, as one page and as JSON.",
        "Heads by statistic with their spread over documents, the documents that stand out, those"
            + " that failed. Of an interrupted run, the waves that are finished count."
      },
      optionListHeading = "%n",
      parameterListHeading = "%n",
      abbreviateSynopsis = true,
      sortOptions = false,
      footerHeading = "%nExample:%n",
      footer = "  loupe corpus report results --html report.html --json report.json")
  static final class Report implements Callable<Integer> {
    @ParentCommand CorpusCommand parent;

    @Parameters(paramLabel = "RESULTS", description = "Folder that runs were written to.")
    String results;

    @Option(
        names = "--run",
        paramLabel = "HASH",
        description = "Which run, where there are several.")
    @Nullable String run;

    @Option(
        names = "--html",
        paramLabel = "FILE",
        description = "Write one page that needs nothing else.")
    @Nullable Path html;

    @Option(
        names = "--json",
        paramLabel = "FILE",
        description = "Write one JSON object; - is standard output.")
    @Nullable Path json;

    @Mixin Common common;

    @Override
    public Integer call() throws IOException {
      if (html == null && json == null) {
        throw new IllegalArgumentException("give --html FILE, --json FILE, or both");
      }
      Terminal terminal = parent.terminal();
      boolean printed = json != null && json.equals(Path.of("-"));
      try (AtomicFile page = html == null ? null : AtomicFile.create(html);
          AtomicFile object = json == null || printed ? null : AtomicFile.create(json);
          CorpusJobs jobs = CorpusJobs.open("loupe corpus report", common.threads)) {
        CorpusReport report = jobs.report(results, Optional.ofNullable(run));
        write(object, report::json);
        write(page, report::html);
        if (printed) { // last: whoever reads it may have enough before the end
          terminal.print(report.json() + "\n");
        }
      }
      return 0;
    }

    private static void write(@Nullable AtomicFile file, Supplier<String> content)
        throws IOException {
      if (file != null) {
        Files.writeString(file.path(), content.get(), StandardCharsets.UTF_8);
        file.commit();
      }
    }
  }
}
