package dev.loupe.hub;

import java.io.IOException;
import java.io.InputStream;
import java.net.http.HttpHeaders;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/** The end of the way to a file: headers, and a body that is not waited for without end. */
final class Answer implements AutoCloseable {
  private final HttpResponse<InputStream> response;
  private final Announcement announcement;
  private final String what;
  private final Duration silence;
  private volatile long heard = System.nanoTime();
  private volatile boolean silent;
  private @Nullable Thread watch;

  Answer(
      HttpResponse<InputStream> response,
      Announcement announcement,
      Duration silence,
      String what) {
    this.response = response;
    this.announcement = announcement;
    this.silence = silence;
    this.what = what;
  }

  int status() {
    return response.statusCode();
  }

  HttpHeaders headers() {
    return response.headers();
  }

  String host() {
    return response.uri().getAuthority();
  }

  /** By which the content can be checked; null if the hub gave none. */
  @Nullable String hash() {
    return announcement.hash();
  }

  /** Bytes of the whole file, by the hub or else by the last answer. */
  OptionalLong announcedSize() throws IOException {
    return announcement.size().isPresent() || status() != 200 ? announcement.size() : length();
  }

  /** Bytes of this answer's body, where it says so. */
  OptionalLong length() throws IOException {
    return Announcement.number(headers(), "Content-Length");
  }

  /**
   * Reads what is there, at least a byte.
   *
   * @return how many bytes, -1 at the end
   * @throws TransientException if the connection breaks or nothing comes for too long
   */
  int read(byte[] to) throws IOException {
    if (watch == null) {
      heard = System.nanoTime();
      watch = Thread.startVirtualThread(this::watch);
    }
    try {
      int n = response.body().read(to);
      heard = System.nanoTime();
      if (!silent) {
        return n;
      }
    } catch (IOException e) {
      if (!silent) {
        throw new TransientException("%s broke off %s".formatted(host(), what), e);
      }
    }
    throw new TransientException(
        "%s stopped in the middle of %s for %s s".formatted(host(), what, silence.toSeconds()));
  }

  /** A read can't be given a time, but closing the body ends it. */
  private void watch() {
    try {
      while (true) {
        long left = silence.toNanos() - (System.nanoTime() - heard);
        if (left <= 0) {
          silent = true;
          response.body().close();
          return;
        }
        Thread.sleep(Duration.ofNanos(left));
      }
    } catch (InterruptedException | IOException e) {
      // the answer is closed, or closing failed and the reader hears that
    }
  }

  /** Ends the connection unless the body was read to its end. */
  @Override
  public void close() throws IOException {
    if (watch != null) {
      watch.interrupt();
    }
    response.body().close();
  }
}
