package dev.loupe.hub;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.weights.io.AtomicFile;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.JsonValue;
import dev.loupe.weights.io.Progress;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorCompletionService;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Brings a model from a hub into a folder: of all that the hub has, the files that Loupe reads.
 *
 * <p>They are gathered beside each other under temporary names, checked against the announced size
 * and hash, and get their names when all are whole, the weights last: a folder with weights in it
 * is complete. What has come stays for the next pull if this one fails, is interrupted or killed.
 */
public final class Pull {
  static final String CONFIG = "config.json";

  /** Of a LoRA adapter; the first of these, likewise. */
  static final List<String> ADAPTERS = List.of("adapter_model.safetensors", "adapter_model.bin");

  static final String ADAPTER_CONFIG = "adapter_config.json";
  static final String GGUF = ".gguf";
  private static final String GENERATION = "generation_config.json"; // the end tokens

  /** The first of these that a hub has is taken; an index names further files. */
  static final List<String> WEIGHTS =
      List.of(
          "model.safetensors",
          "model.safetensors.index.json",
          "pytorch_model.bin",
          "pytorch_model.bin.index.json");

  private static final String TOKENIZER = "tokenizer.json";

  /** Vocabularies of the older forms, with what goes with each. */
  private static final List<List<String>> OLD_TOKENIZERS =
      List.of(
          List.of("vocab.json", "merges.txt"),
          List.of("vocab.txt"),
          List.of("spiece.model"),
          List.of("tokenizer.model"));

  /** What changes the ids of a text, whatever the vocabulary. */
  private static final List<String> TOKENIZER_SETTINGS =
      List.of("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json");

  private static final String PLAIN_NAME = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}";
  private static final int LONGEST_INDEX = 16 << 20;
  private static final int AT_ONCE = 4;
  private static final int MOST_NAMED = 5;
  private static final long NEWS_MS = 100;

  private final Hub hub;
  private final ModelName name;
  private final Optional<String> file;
  private final Path folder;
  private final AtomicLong arrived = new AtomicLong();
  private final AtomicLong total = new AtomicLong();

  private Pull(Hub hub, ModelName name, Optional<String> file, Path folder) {
    this.hub = hub;
    this.name = name;
    this.file = file;
    this.folder = folder;
  }

  /**
   * What was pulled.
   *
   * @param files names, the weights last
   * @param bytes of all files
   * @param fetched bytes that were not there before
   */
  public record Pulled(List<String> files, long bytes, long fetched) {
    /** Whether Loupe can read text for this model. */
    public boolean hasTokenizer() {
      return files.contains(TOKENIZER)
          || OLD_TOKENIZERS.stream().anyMatch(old -> files.contains(old.getFirst()))
          || files.contains(ADAPTER_CONFIG) // whose base has one
          || files.getLast().endsWith(GGUF);
    }
  }

  /**
   * Pulls {@code name} into {@code folder}, which is made if it is missing. Files that are there
   * already, and are what the hub announces, stay.
   *
   * @param file the weights to take; empty for those of the usual names. A GGUF file needs no other
   * @param progress hears of bytes, from this thread; what it throws ends the pull
   * @throws CheckpointException if the hub has no such model or revision, or no GPT-2 files in it
   * @throws SeveralFilesException if there are several GGUF files, and none was named
   * @throws IOException if it can't be had, or the folder holds another file of such a name; the
   *     message is one sentence
   */
  public static Pulled run(
      Hub hub, ModelName name, Optional<String> file, Path folder, Progress progress)
      throws IOException {
    // closed at the end: what still runs then has been interrupted, but may be writing
    try (ExecutorService thread = Executors.newVirtualThreadPerTaskExecutor()) {
      try {
        Pull pull = new Pull(hub, name, file, folder);
        Future<Pulled> pulled = thread.submit(pull::pull);
        while (true) {
          try {
            return pulled.get(NEWS_MS, TimeUnit.MILLISECONDS);
          } catch (TimeoutException e) {
            progress.report(pull.arrived.get(), Math.max(1, pull.total.get()));
          }
        }
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new CancellationException("interrupted while pulling " + name);
      } catch (ExecutionException e) {
        throw failure(e);
      } finally {
        thread.shutdownNow();
      }
    }
  }

  private static IOException failure(ExecutionException e) {
    return switch (e.getCause()) {
      case IOException io -> io;
      case RuntimeException runtime -> throw runtime;
      case Error error -> throw error;
      case null, default -> new IOException("the pull ended: " + e.getCause(), e);
    };
  }

  private Pulled pull() throws IOException, InterruptedException {
    Hub.Listing listing = hub.list(name);
    List<RemoteFile> files = new ArrayList<>();
    for (String file : wanted(listing)) {
      files.add(hub.announced(name, listing.commit(), file));
    }
    try (PullFolder staging = PullFolder.open(folder)) {
      RemoteFile weights = files.getLast();
      if (weights.name().endsWith(".index.json")) {
        files.addAll(0, shards(weights, listing, staging));
      }
      List<RemoteFile> missing = new ArrayList<>();
      for (RemoteFile file : files) {
        if (!isThere(file)) {
          missing.add(file);
        }
      }
      requireRoom(missing, staging);
      fetch(missing, listing, staging);
      for (RemoteFile file : missing) {
        staging.publish(file);
      }
      staging.clear();
      return new Pulled(
          files.stream().map(RemoteFile::name).toList(), bytes(files), bytes(missing));
    }
  }

  private static long bytes(List<RemoteFile> files) {
    return files.stream().mapToLong(RemoteFile::size).reduce(0, Math::addExact);
  }

  /** Names of the files to begin with, the weights or their index last. */
  private List<String> wanted(Hub.Listing listing)
      throws CheckpointException, SeveralFilesException {
    String weights = weights(listing);
    if (weights.endsWith(GGUF)) {
      return List.of(weights);
    }
    String config = ADAPTERS.contains(weights) ? ADAPTER_CONFIG : CONFIG;
    if (!listing.files().contains(config)) {
      throw new CheckpointException(
          "%s on %s holds no %s, so it is no GPT-2 model".formatted(name, hub.host(), config));
    }
    List<String> wanted = new ArrayList<>(List.of(config));
    if (listing.files().contains(GENERATION)) {
      wanted.add(GENERATION);
    }
    List<String> tokenizer = new ArrayList<>(TOKENIZER_SETTINGS);
    if (listing.files().contains(TOKENIZER)) {
      tokenizer.add(TOKENIZER);
    } else {
      OLD_TOKENIZERS.forEach(tokenizer::addAll);
    }
    tokenizer.stream().filter(listing.files()::contains).forEach(wanted::add);
    wanted.add(weights);
    return wanted;
  }

  private String weights(Hub.Listing listing) throws CheckpointException, SeveralFilesException {
    List<String> ggufs =
        listing.files().stream()
            .filter(known -> known.endsWith(GGUF) && known.matches(PLAIN_NAME))
            .sorted()
            .toList();
    if (file.isPresent()) {
      if (!listing.files().contains(file.get()) || !file.get().matches(PLAIN_NAME)) {
        throw new CheckpointException(
            "%s on %s holds no file %s%s"
                .formatted(name, hub.host(), file.get(), ggufs.isEmpty() ? "" : some(ggufs)));
      }
      return file.get();
    }
    for (List<String> kind : List.of(WEIGHTS, ADAPTERS)) {
      Optional<String> usual = kind.stream().filter(listing.files()::contains).findFirst();
      if (usual.isPresent()) {
        return usual.get();
      }
    }
    if (ggufs.size() == 1) {
      return ggufs.getFirst();
    }
    if (ggufs.isEmpty()) {
      throw new CheckpointException(
          "%s on %s holds no weights that Loupe pulls: none of %s"
              .formatted(name, hub.host(), String.join(", ", WEIGHTS)));
    }
    throw new SeveralFilesException(
        "%s on %s holds several GGUF files: name one of them%s"
            .formatted(name, hub.host(), some(ggufs)));
  }

  private static String some(List<String> files) {
    return "; there are "
        + String.join(", ", files.subList(0, Math.min(MOST_NAMED, files.size())))
        + (files.size() > MOST_NAMED ? " and more" : "");
  }

  /** What an index names; it has to be fetched to know. */
  private List<RemoteFile> shards(RemoteFile index, Hub.Listing listing, PullFolder staging)
      throws IOException, InterruptedException {
    if (index.size() > LONGEST_INDEX) {
      throw new CheckpointException(
          "%s on %s has %d bytes, too many for an index"
              .formatted(index.name(), hub.host(), index.size()));
    }
    Path there = folder.resolve(index.name());
    if (!isThere(index)) {
      there = staging.part(index);
      download(index, listing, staging).run();
    }
    List<RemoteFile> shards = new ArrayList<>();
    for (String shard : shardNames(there, index.name())) {
      if (!shard.matches(PLAIN_NAME) || !listing.files().contains(shard)) {
        throw new CheckpointException(
            "%s on %s names a shard that the hub does not have"
                .formatted(index.name(), hub.host()));
      }
      shards.add(hub.announced(name, listing.commit(), shard));
    }
    return shards;
  }

  private SortedSet<String> shardNames(Path index, String called) throws IOException {
    SortedSet<String> names = new TreeSet<>();
    try {
      JsonObject all = InputFile.read(index, LONGEST_INDEX, "an index").object();
      JsonObject map = JsonValue.object(all.get("weight_map"), "weight_map");
      for (JsonElement shard : map.asMap().values()) {
        names.add(JsonValue.text(shard, "a shard's name"));
      }
      return names;
    } catch (CheckpointException | IllegalArgumentException e) {
      throw new CheckpointException(
          "%s on %s is no index of shards: %s".formatted(called, hub.host(), e.getMessage()), e);
    }
  }

  /**
   * Whether the folder has this very file.
   *
   * @throws IOException if it has another one of that name, which is somebody's
   */
  private boolean isThere(RemoteFile file) throws IOException {
    Path path = folder.resolve(file.name());
    if (!Files.exists(path)) {
      return false;
    }
    if (!Files.isRegularFile(path) || Files.size(path) != file.size() || !hasHash(path, file)) {
      throw new IOException(
          "%s is not what %s has: delete it to pull that, or give another folder"
              .formatted(path, hub.host()));
    }
    return true;
  }

  private static boolean hasHash(Path path, RemoteFile file) throws IOException {
    var digest = file.digest();
    byte[] chunk = new byte[1 << 18];
    try (var in = Files.newInputStream(path)) {
      for (int n = in.read(chunk); n >= 0; n = in.read(chunk)) {
        digest.update(chunk, 0, n);
      }
    }
    return HexFormat.of().formatHex(digest.digest()).equals(file.hash());
  }

  private void requireRoom(List<RemoteFile> missing, PullFolder staging) throws IOException {
    long needed = bytes(missing);
    total.set(needed);
    for (RemoteFile file : missing) {
      Path part = staging.part(file);
      needed -= Files.exists(part) ? Math.min(Files.size(part), file.size()) : 0;
    }
    long room = AtomicFile.room(folder);
    if (room < needed) {
      throw new IOException(
          "%s needs %d bytes more, but the file system of %s has room for %d only"
              .formatted(name, needed, folder, room));
    }
  }

  private Download download(RemoteFile file, Hub.Listing listing, PullFolder staging) {
    String path = Hub.path(name, listing.commit(), file.name());
    return new Download(hub, path, file, staging.part(file), arrived);
  }

  /** Several files at a time; the first that fails ends them all. */
  private void fetch(List<RemoteFile> missing, Hub.Listing listing, PullFolder staging)
      throws IOException, InterruptedException {
    arrived.set(0); // an index that came before is counted when its part is taken up
    try (ExecutorService workers =
        Executors.newFixedThreadPool(AT_ONCE, Thread.ofVirtual().factory())) {
      ExecutorCompletionService<Boolean> ended = new ExecutorCompletionService<>(workers);
      for (RemoteFile file : missing) {
        ended.submit(
            () -> {
              download(file, listing, staging).run();
              return true;
            });
      }
      try {
        for (int i = 0; i < missing.size(); i++) {
          boolean _ = ended.take().get();
        }
      } catch (ExecutionException e) {
        throw failure(e);
      } finally {
        workers.shutdownNow();
      }
    }
  }
}
