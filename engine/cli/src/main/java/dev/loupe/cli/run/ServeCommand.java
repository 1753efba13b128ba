package dev.loupe.cli.run;

import dev.loupe.Loupe;
import dev.loupe.chat.ChatTemplate;
import dev.loupe.chat.ChatTemplateException;
import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.options.ModelOptions;
import dev.loupe.cli.options.NamedModels;
import dev.loupe.cli.options.QuietOption;
import dev.loupe.cli.terminal.InputException;
import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.serve.Server;
import dev.loupe.serve.ServerOptions;
import dev.loupe.text.ChatFormat;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.io.InputFile;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParentCommand;

/** {@code loupe serve}: the model over HTTP, until Ctrl-C. */
@Command(
    name = "serve",
    description = {
      "Serve the workbench, a page in the browser, and OpenAI's completions API.",
      "The page shows what the model writes and what it attended to.",
      "Prints its address when it listens. Ctrl-C stops it; running requests end with what they have."
    },
    optionListHeading = "%n",
    abbreviateSynopsis = true,
    sortOptions = false,
    footerHeading = "%nExample:%n",
    footer = {
      "  loupe serve &",
      "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"ROMEO:\"}'"
    })
public final class ServeCommand implements Callable<Integer> {
  private static final int LONGEST_KEY = 1 << 16;
  private static final String KEY_VARIABLE = "LOUPE_API_KEY";

  @ParentCommand LoupeCommand parent;

  @Option(
      names = "--host",
      paramLabel = "H",
      description = "Address to listen at (default: 127.0.0.1, this machine alone).")
  String host = "127.0.0.1";

  @Option(
      names = "--port",
      paramLabel = "P",
      description = "Port; 0 takes a free one (default: 8080).")
  int port = 8080;

  @Option(
      names = "--api-key-file",
      paramLabel = "F",
      description =
          "Serve only clients that send the key in this file (default: the one in LOUPE_API_KEY).")
  @Nullable Path keyFile;

  @Option(
      names = "--chat-template",
      paramLabel = "F",
      description =
          "Jinja template that turns a conversation into one text (default: that of the model's files).")
  @Nullable Path chatTemplate;

  @Option(
      names = "--queue",
      paramLabel = "N",
      description = "Requests that may wait while others run (default: 64).")
  int queue = 64;

  @Option(
      names = "--slots",
      paramLabel = "N",
      description = "Texts to write at once (default: 8); fewer where memory is short.")
  int slots = 8;

  @Option(
      names = "--timeout",
      paramLabel = "S",
      description = "Seconds a request may take, waiting included (default: 300).")
  int timeout = 300;

  @Mixin QuietOption quiet;

  @ArgGroup(validate = false, order = 1, heading = "%nModel:%n")
  ModelOptions model = new ModelOptions();

  @Override
  public Integer call() throws IOException {
    Terminal terminal = parent.terminal();
    ServerOptions options =
        new ServerOptions(
            host,
            port,
            key(),
            queue,
            slots,
            Duration.ofSeconds(timeout),
            nameOfModel(),
            chat(terminal));
    try (Loupe loupe = model.open(terminal, quiet.set, true, false, usual -> usual.slots(slots));
        Interrupt interrupt = new Interrupt(terminal);
        Server server = listen(loupe, options, terminal)) {
      if (server.isOpenToOthers() && options.apiKey().isEmpty()) {
        terminal.say(
            "[anybody who reaches %s may use the model: --api-key-file or %s would ask for a key]"
                .formatted(host, KEY_VARIABLE));
      }
      server.prepare();
      interrupt.onlyAsk();
      terminal.print("%s is served at %s\n".formatted(options.model(), server.address()));
      if (!quiet.set && server.slots() < slots) {
        terminal.say(
            "[%d texts are written at once, not %d: memory is short]"
                .formatted(server.slots(), slots));
      }
      if (!quiet.set) {
        terminal.say("[open that in a browser for the workbench; Ctrl-C ends it]");
      }
      while (!interrupt.asked()) {
        Thread.sleep(50);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    return Interrupt.exitCode();
  }

  private static Server listen(Loupe loupe, ServerOptions options, Terminal terminal) {
    try {
      return Server.start(loupe, options, why -> terminal.say("[" + why + "]"));
    } catch (IllegalArgumentException e) {
      if (e.getCause() instanceof IOException) {
        throw new IllegalArgumentException(e.getMessage() + "; choose another with --port", e);
      }
      throw e;
    }
  }

  /** The last part of the path, or of the name, that was given: clients need not know the rest. */
  private String nameOfModel() throws IOException {
    Path given = model.model == null ? model.source() : model.model;
    Path name = given.toAbsolutePath().normalize().getFileName();
    return name == null ? "gpt2" : name.toString();
  }

  /**
   * The template that is given, or the model's own. That of a model that has one which can't be
   * used is a note: texts are served all the same.
   */
  private Optional<ChatTemplate> chat(Terminal terminal) throws IOException {
    NamedModels.Found found = model.find();
    if (chatTemplate != null) {
      try {
        return Optional.of(template(ChatFormat.from(chatTemplate, found.source())));
      } catch (ChatTemplateException e) {
        throw new InputException(String.valueOf(e.getMessage()));
      }
    }
    try {
      Optional<ChatFormat> format =
          found.adapter().isPresent() ? ChatFormat.of(found.adapter().get()) : Optional.empty();
      if (format.isEmpty()) {
        format = ChatFormat.of(found.source());
      }
      if (format.isEmpty()) {
        try (Checkpoint checkpoint = Checkpoint.open(found.source(), model.activation)) {
          format = ChatFormat.carried(checkpoint);
        }
      }
      return format.isEmpty() ? Optional.empty() : Optional.of(template(format.get()));
    } catch (ChatTemplateException e) {
      if (!quiet.set) {
        terminal.say("[%s; conversations are refused]".formatted(e.getMessage()));
      }
      return Optional.empty();
    }
  }

  private static ChatTemplate template(ChatFormat format) throws ChatTemplateException {
    return new ChatTemplate(format.template(), format.source(), format.tokens());
  }

  private Optional<String> key() throws IOException {
    if (keyFile == null) {
      return Optional.ofNullable(System.getenv(KEY_VARIABLE));
    }
    String key = InputFile.read(keyFile, LONGEST_KEY, "an API key").text().strip();
    if (key.isEmpty()) {
      throw new InputException(keyFile + ": no API key in it");
    }
    return Optional.of(key);
  }
}
