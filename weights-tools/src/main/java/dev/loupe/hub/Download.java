package dev.loupe.hub;

import dev.loupe.weights.io.FileFault;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.OptionalLong;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * One file on its way from the hub. What has come lies in a part that bears the hash of the whole:
 * whoever comes later, after a broken line or a killed process, goes on at its end, and nothing of
 * another version can get in unnoticed.
 */
final class Download {
  private static final int CHUNK = 1 << 18;
  private static final int GAIN = 1 << 20; // that much, and earlier failures are forgiven

  private final Hub hub;
  private final String path;
  private final RemoteFile file;
  private final Path part;
  private final AtomicLong arrived;
  private final byte[] chunk = new byte[CHUNK];
  private MessageDigest digest;
  private long have; // bytes that are in the part and in the digest
  private boolean inPieces; // from more than one answer
  private @Nullable String etag; // strong, of the answer that the last bytes came with

  /**
   * @param path where the hub has it
   * @param part where it is gathered
   * @param arrived is told of bytes as they come, and taken from when they prove useless
   */
  Download(Hub hub, String path, RemoteFile file, Path part, AtomicLong arrived) {
    this.hub = hub;
    this.path = path;
    this.file = file;
    this.part = part;
    this.arrived = arrived;
    this.digest = file.digest();
  }

  /**
   * Gets what is missing. Afterwards the part is whole and has the announced hash.
   *
   * @throws IOException if it can't be had; what has come stays for the next time, unless it is
   *     known to be wrong
   */
  void run() throws IOException, InterruptedException {
    Retries retries = new Retries(hub.patience());
    try (FileChannel to =
        FileChannel.open(
            part, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
      takeUp(to);
      while (true) {
        long before = have;
        try {
          if (have < file.size()) {
            fetch(to);
          }
          check(to);
          return;
        } catch (TransientException e) {
          if (have - before >= GAIN) {
            retries.forget();
          }
          retries.pause(e);
        }
      }
    }
  }

  /** What an earlier run left. */
  private void takeUp(FileChannel to) throws IOException {
    if (to.size() > file.size()) {
      to.truncate(0);
    }
    to.position(0);
    ByteBuffer buffer = ByteBuffer.wrap(chunk);
    for (int n = to.read(buffer.clear()); n >= 0; n = to.read(buffer.clear())) {
      count(n);
    }
    inPieces = have > 0;
  }

  private void count(int n) {
    digest.update(chunk, 0, n);
    have += n;
    arrived.addAndGet(n);
  }

  private void startOver(FileChannel to) throws IOException {
    to.truncate(0);
    arrived.addAndGet(-have);
    have = 0;
    digest = file.digest();
    inPieces = false;
    etag = null;
  }

  private void fetch(FileChannel to) throws IOException, InterruptedException {
    try (Answer answer = hub.send("GET", path, have, etag, file.name())) {
      String hash = answer.hash();
      if (hash != null && !hash.equals(file.hash())) {
        throw new IOException(
            "%s changed on %s while it came: start again".formatted(file.name(), hub.host()));
      }
      begin(to, answer);
      etag = answer.headers().firstValue("ETag").filter(tag -> tag.startsWith("\"")).orElse(null);
      for (int n = answer.read(chunk); n >= 0; n = answer.read(chunk)) {
        if (have + n > file.size()) {
          startOver(to);
          throw otherLength("more", answer);
        }
        ByteBuffer bytes = ByteBuffer.wrap(chunk, 0, n);
        while (bytes.hasRemaining()) {
          write(to, bytes);
        }
        count(n);
      }
      if (have < file.size()) {
        throw new TransientException(
            "%s ended %s after %d of %d bytes"
                .formatted(answer.host(), file.name(), have, file.size()));
      }
    }
  }

  private void write(FileChannel to, ByteBuffer bytes) throws IOException {
    try {
      to.write(bytes);
    } catch (ClosedChannelException e) {
      throw e; // an interrupt
    } catch (IOException e) {
      throw new IOException("%s can't be written: %s".formatted(part, FileFault.of(e)), e);
    }
  }

  /** Sees to it that what is about to come belongs at the end of what is there. */
  private void begin(FileChannel to, Answer answer) throws IOException {
    if (answer.status() == 416) {
      startOver(to);
      throw new TransientException(
          "%s has no bytes of %s from there on".formatted(answer.host(), file.name()));
    }
    if (answer.status() == 200) {
      startOver(to); // it ignores ranges, or it has other bytes than before
    } else {
      String range = answer.headers().firstValue("Content-Range").orElse("");
      if (have == 0
          || !range.matches("bytes %d-%d/(%d|\\*)".formatted(have, file.size() - 1, file.size()))) {
        startOver(to);
        throw new TransientException(
            "%s sent other bytes of %s than were asked for".formatted(answer.host(), file.name()));
      }
      inPieces = true;
    }
    OptionalLong length = answer.length();
    if (length.isPresent() && length.getAsLong() != file.size() - have) {
      throw otherLength(Long.toString(length.getAsLong()), answer);
    }
    to.position(have);
  }

  private IOException otherLength(String bytes, Answer answer) {
    return new IOException(
        "%s sends %s bytes of %s where %d were announced"
            .formatted(answer.host(), bytes, file.name(), file.size() - have));
  }

  private void check(FileChannel to) throws IOException {
    String hash = HexFormat.of().formatHex(digest.digest());
    if (hash.equals(file.hash())) {
      return;
    }
    boolean pieces = inPieces;
    startOver(to);
    String message =
        "%s from %s has %s %s, not %s as announced"
            .formatted(file.name(), hub.host(), file.algorithm(), hash, file.hash());
    // pieces may be of different things; what came in one go won't get better
    throw pieces ? new TransientException(message) : new IOException(message);
  }
}
