package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Those who are there for the whole of a soak of {@link ServerLoad}, beside good and bad clients.
 */
final class SoakAttacks {
  static final int IDLE = 300;
  private static final int UNREAD = 30;
  private static final int PROMPTS = 12;
  private static final int BYTES_A_SECOND = 300_000;

  private final ServerLoad load;
  final AtomicLong slowest = new AtomicLong(); // ms of a client amid idle ones

  SoakAttacks(ServerLoad load) {
    this.load = load;
  }

  /** One of those who are there for the whole of a soak. */
  interface Attack {
    String once() throws IOException, InterruptedException;
  }

  /** A client that takes its file slowly gets all of it, however long that takes. */
  String steady(String file, long whole) throws IOException, InterruptedException {
    try (Socket socket = load.socket()) {
      ServerLoad.send(socket, "GET " + file, "");
      InputStream in = socket.getInputStream();
      StringBuilder head = new StringBuilder();
      while (!head.toString().endsWith("\r\n\r\n")) {
        int next = in.read();
        if (next < 0) {
          return "WRONG: a download that did not begin";
        }
        head.append((char) next);
      }
      if (head.toString().startsWith("HTTP/1.1 429")) {
        Thread.sleep(1000);
        return "download, refused";
      }
      long left = whole;
      byte[] piece = new byte[BYTES_A_SECOND / 10];
      while (left > 0) {
        int read = in.readNBytes(piece, 0, (int) Math.min(piece.length, left));
        if (read == 0) {
          return "WRONG: a steady download of %d bytes ends %d before".formatted(whole, left);
        }
        left -= read;
        Thread.sleep(100);
      }
      return "steady download, whole";
    }
  }

  /** Clients that ask for a large file and take nothing of it. */
  String unread(String file) throws IOException, InterruptedException {
    List<Socket> sockets = new ArrayList<>();
    for (int i = 0; i < UNREAD; i++) {
      Socket socket = load.socket();
      ServerLoad.send(socket, "GET " + file, "");
      sockets.add(socket);
    }
    Thread.sleep(40_000);
    for (Socket socket : sockets) {
      socket.close();
    }
    return "%d downloads that nobody reads".formatted(UNREAD);
  }

  /** Connections that say nothing, and amid them one that asks. */
  String amidIdle() throws IOException, InterruptedException {
    List<Socket> sockets = new ArrayList<>();
    for (int i = 0; i < IDLE; i++) {
      sockets.add(load.socket());
    }
    String outcome = "served amid idle ones";
    for (int i = 0; i < 10; i++) {
      long start = System.nanoTime();
      try (Socket socket = load.socket()) {
        ServerLoad.send(socket, "GET /healthz", "");
        String said = new String(socket.getInputStream().readNBytes(12), UTF_8);
        long took = (System.nanoTime() - start) / 1_000_000;
        slowest.accumulateAndGet(took, Math::max);
        if (!said.equals("HTTP/1.1 200") || took > 1000) {
          outcome = "WRONG: amid idle ones after %d ms: %s".formatted(took, said);
        }
      }
      Thread.sleep(1000);
    }
    for (Socket socket : sockets) {
      socket.close();
    }
    return outcome;
  }

  /** Long prompts, of which the end is asked for so that they are read, and who leaves at once. */
  String longPrompts() throws IOException, InterruptedException {
    String prompt =
        "{\"prompt\": \"%s\", \"truncate_prompt_tokens\": 5}".formatted("a b ".repeat(250_000));
    List<Socket> sockets = new ArrayList<>();
    for (int i = 0; i < PROMPTS; i++) {
      Socket socket = load.socket();
      ServerLoad.send(socket, "POST /v1/completions", prompt);
      sockets.add(socket);
    }
    for (Socket socket : sockets) {
      socket.close();
    }
    Thread.sleep(5000);
    return "%d long prompts of clients that left".formatted(PROMPTS);
  }
}
