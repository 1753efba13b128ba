package dev.loupe.serve.http;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.channel.embedded.EmbeddedChannel;
import java.net.InetAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Who makes way for whom, and when; time stands still unless a test lets it pass. */
class ConnectionsMakeRoomTest {
  private static final int MOST = 3;

  private record Client(EmbeddedChannel channel, Connection connection) {
    boolean isOpen() {
      return channel.isOpen();
    }

    void momentPasses() {
      channel.advanceTimeBy(150, TimeUnit.MILLISECONDS);
      channel.runScheduledPendingTasks();
    }
  }

  private final Connections connections = new Connections(100, MOST);

  private Client arrives() {
    EmbeddedChannel channel = new EmbeddedChannel();
    channel.freezeTime();
    Connection connection = new Connection(_ -> {}, Duration.ofSeconds(30));
    assertTrue(connections.admit(channel, connection, InetAddress.getLoopbackAddress()));
    return new Client(channel, connection);
  }

  private List<Client> fill() {
    List<Client> clients = new ArrayList<>();
    for (int i = 0; i < MOST; i++) {
      clients.add(arrives());
    }
    return clients;
  }

  @Test
  void theOldestThatSaidNothingIsClosedAMomentLater() {
    List<Client> clients = fill();
    clients.getFirst().connection.arrived();
    arrives();
    assertTrue(clients.get(1).isOpen());
    clients.forEach(Client::momentPasses);
    assertEquals(List.of(true, false, true), clients.stream().map(Client::isOpen).toList());
  }

  @Test
  void oneWhoseRequestArrivesAfterAllStays() {
    List<Client> clients = fill();
    arrives();
    clients.getFirst().connection.arrived();
    clients.forEach(Client::momentPasses);
    assertTrue(clients.stream().allMatch(Client::isOpen));
    arrives(); // instead of the next that says nothing
    clients.forEach(Client::momentPasses);
    assertEquals(List.of(true, false, true), clients.stream().map(Client::isOpen).toList());
  }

  @Test
  void partsOfRequestsMakeWayWhereNothingElseDoes() {
    List<Client> clients = fill();
    clients.forEach(client -> client.connection.arrived());
    Client last = arrives();
    clients.forEach(Client::momentPasses);
    assertFalse(clients.getFirst().isOpen());
    assertTrue(last.isOpen());
  }

  @Test
  void manyAtOnceAreClosedAtOnce() {
    List<Client> clients = new ArrayList<>();
    for (int i = 0; i < 200; i++) {
      clients.add(arrives());
    }
    assertEquals(MOST + 64, clients.stream().filter(Client::isOpen).count());
    clients.forEach(Client::momentPasses);
    assertEquals(MOST, clients.stream().filter(Client::isOpen).count());
  }
}
